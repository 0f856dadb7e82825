"""Incidents of CRM sync: leads of one system, and a CRM for each kind."""

from collections import Counter
from datetime import timedelta
from typing import Any

from crmsync.models import Crm, Policy, Record, RecoveryEntry, Source
from crmsync.monitor import counters
from crmsync.policies import run_requests
from msgplatform.core.data import sql
from msgplatform.models import Biz, FailureGroup, MinuteCounter
from tests.programs.alerts.incidents import Course, Places, incident, refuse
from tests.support.crm_rows import dead, lead, operation, policy, record


def _crm(name: str, url: str, **fields: Any) -> Crm:
    given = {"adapter": "http", "settings": {"url": url}, "retry_seconds": [0], **fields}
    return Crm.objects.create(name=name, **given)


def _policy(crm: Crm, count: int = 1, **fields: Any) -> Policy:
    """With leads of a system of its own, which wait for this CRM."""
    biz = Biz.objects.create(name=f"leads-{crm.name}")
    for _ in range(count):
        lead(biz)
    return policy(crm, biz=biz, interval_seconds=1, **{"mapping": "name = name", **fields})


def _stop(crm: Crm) -> None:
    Policy.objects.filter(crm=crm).update(enabled=False)
    Crm.objects.filter(pk=crm.pk).update(enabled=False, paused_at=None)


@incident("crm.stalled", r"busy has confirmed nothing for .*wait")
def a_crm_is_busy(places: Places) -> Course:
    crm = _crm("busy", places["busy"], retry_seconds=[0.2] * 9)
    _policy(crm, 5)
    yield
    _stop(crm)


@incident("crm.paused", r"refuses the credentials.*401")
def a_crm_refuses_the_password(places: Places) -> Course:
    crm = _crm("locked", places["locked"])
    _policy(crm)
    yield
    _stop(crm)


@incident("crm.unusable", r"url")
def a_crm_has_no_address(places: Places) -> Course:
    crm = _crm("nowhere", "", settings={})
    yield
    Crm.objects.filter(pk=crm.pk).update(settings={"url": places["well"]}, enabled=False)


@incident("crm.fault", r"cannot be written: IntegrityError", is_for_person=True)
def an_answer_cannot_be_written(places: Places) -> Course:
    crm = _crm("broken", places["picky"])
    what = f"NEW.crm_id = {crm.pk} AND NEW.message NOT LIKE 'The answer cannot%%'"
    allow = refuse("INSERT", "sync_item", what)
    _policy(crm)
    yield
    allow()
    _stop(crm)


@incident("crm.policy", r"nothing is read for it")
def a_mapping_is_wrong(places: Places) -> Course:
    crm = _crm("mapped", places["well"])
    row = policy(crm, mapping="name = ")
    yield
    Policy.objects.filter(pk=row.pk).update(mapping="name = name", enabled=False)


@incident("crm.source", r"The source away cannot be read.*does not answer")
def a_source_does_not_answer(places: Places) -> Course:
    crm = _crm("reader", places["well"])
    source = Source.objects.create(
        name="away", database="mysql://reader:x@127.0.0.1:1/shop", table="customer",
        time_column="changed_at", value_columns=["name"],
    )  # fmt: skip
    policy(crm, source, mapping="name = name", interval_seconds=1)
    yield
    _stop(crm)


@incident("crm.horizon", r"has been open for .*minutes.*commit it")
def a_transaction_stays_open(places: Places) -> Course:
    import MySQLdb

    crm = _crm("late", places["well"])
    source = Source.objects.create(
        name="shop", database=places["source"], table="customer", time_column="changed_at",
        value_columns=["name"],
    )  # fmt: skip
    connection = MySQLdb.connect(
        unix_socket=places["socket"], user="root", database="shop", charset="utf8mb4"
    )
    connection.cursor().execute("INSERT INTO customer VALUES (1, 'ann', NOW(6))")
    policy(crm, source, mapping="name = name", interval_seconds=1)
    yield
    connection.rollback()
    connection.close()


@incident("crm.dead", r"20 of 20 records are dead")
def a_crm_refuses_everything(places: Places) -> Course:
    crm = _crm("picky", places["picky"])
    row = _policy(crm, 20)
    yield
    _stop(crm)
    MinuteCounter.objects.filter(flow="crmsync", subject=row.pk).delete()


@incident("crmsync.failures", r"Messages: 2, since .*\(2\)")
def records_are_dead(places: Places) -> Course:
    crm = _crm("strict", places["picky"])
    _policy(crm, 2)
    yield
    _stop(crm)
    FailureGroup.objects.filter(flow="crmsync").update(count=0)


@incident("crm.recovery", r"open for more than a day: 1")
def nobody_decides(places: Places) -> Course:
    crm = _crm("forgotten", places["well"])
    row = policy(crm, enabled=False)
    entry = dead(row, "1", {"name": "ann"})
    two_days_ago = sql.now() - timedelta(days=2)
    RecoveryEntry.objects.filter(pk=entry.pk).update(created_at=two_days_ago)
    yield
    RecoveryEntry.objects.filter(pk=entry.pk).update(state=RecoveryEntry.State.DISMISSED)


@incident("crm.removals", r"would delete or clear 1 of 1 records.*None of these was sent")
def a_source_is_emptied(places: Places) -> Course:
    crm = _crm("emptied", places["well"])
    row = _policy(crm, 0, guard_records=1)
    gone = lead(Biz.objects.get(name="leads-emptied"), is_delete=True)
    record(row, operation(row, []), str(gone.pk), version=0)
    yield
    row.refresh_from_db()
    run_requests.decide(row, Policy.Decision.REFUSED, row.stopped_removals, "li")


# -- alerts while neither poller nor handler runs ------------------------------------------------
WITHOUT_PROGRAMS = {
    "crm.stalled": r"asleep has confirmed nothing for .*wait",
    "crm.paused": r"The CRM shut refuses the credentials.*HTTP 401: closed",
    "crm.dead": r"asleep: 25 of 25 records are dead",
    "crm.recovery": r"open for more than a day: 2",
}


def begin_without_programs(url: str) -> None:
    """Make rows for each kind of WITHOUT_PROGRAMS."""
    now = sql.now()
    _crm("shut", url, paused_at=now, paused_because="HTTP 401: closed")
    row = _policy(_crm("asleep", url))
    due = operation(row, [])
    record(row, due, "due", state=Record.State.WAITING, next_at=now)
    counters.add(Counter({(row.pk, counters.DEAD): 25}), now)
    for key in ("1", "2"):
        entry = dead(row, key, {"name": "ann"})
        RecoveryEntry.objects.filter(pk=entry.pk).update(created_at=now - timedelta(days=2))


def end_without_programs() -> None:
    for crm in Crm.objects.filter(name__in=("shut", "asleep")):
        _stop(crm)
    MinuteCounter.objects.filter(flow="crmsync", name=counters.DEAD).delete()
    RecoveryEntry.objects.update(state=RecoveryEntry.State.DISMISSED)
