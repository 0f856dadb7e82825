"""Retention of the SMS archive: old months go whole, what is not final stays, and archiving is
never kept waiting."""

import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from importlib import import_module
from typing import Any

import pytest
from django.db import connection, connections
from pytest_django.fixtures import Settings

from gateway import checks
from gateway.connections import sms_redis
from gateway.flow import FLOW
from gateway.lifecycle import keys
from gateway.lifecycle.messages import ReportIn
from gateway.messages import states
from gateway.messages.index import MESSAGES
from gateway.messages.page import page as page_of
from gateway.models import SgipMo, SgipMt, SgipMtPart, SgipReport, SgipUserRpt, SmsGateway
from gateway.pump import retention as sms
from gateway.pump.pump import Pump
from gateway.pump.retention import ARCHIVE
from msgplatform.core.archive import partitions, retention
from msgplatform.core.archive.description import Table
from msgplatform.core.archive.partitions import partitions_of
from msgplatform.core.data import ids, sql
from msgplatform.messages import engine
from msgplatform.models import Alert, Biz
from tests.support import sms_rows
from tests.support.archive_support import old_id, without_months
from tests.support.children import child
from tests.support.sms_rows import NODE, TS, Caller, report, respond, send, submit

shop = sms_rows.shop
pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]
ON_MARIADB = connection.vendor == "mysql"
NUMBER = "8613800000000"
EVERYTHING = (SgipMt, SgipMtPart, SgipReport, SgipMo, SgipUserRpt)
KILLED = -9


@pytest.fixture(autouse=True)
def fresh(db: None) -> Iterator[None]:
    """Tables as a migration leaves them, without months."""
    without_months(ARCHIVE)
    yield
    without_months(ARCHIVE)


def message(days: float, final: str = "delivered", submitted_days: float | None = None) -> int:
    """An archived message accepted so many days ago, with a part and a Report; its id."""
    pk = old_id(days)
    at = ids.datetime_of(pk)
    submitted = at if submitted_days is None else sql.now() - timedelta(days=submitted_days)
    SgipMt.objects.create(
        id=pk, biz_id=1, account_id=1, gateway_id=1, sp_number="10655", user_number=NUMBER,
        corp_id="99999", fee_type=1, fee_value="0", given_value="0", agent_flag=0,
        morelateto_mt_flag=2, priority=0, report_flag=1, text="hello", final=final,
        reference=f"order-{pk}", accepted_at=at, submitted_at=submitted, archived_at=at,
    )  # fmt: skip
    parts_of(pk, days)
    return pk


def parts_of(pk: int, days: float) -> None:
    """A part and a Report of the message, made so many days ago."""
    SgipMtPart.objects.create(
        id=old_id(days), mt_id=pk, part=1, node=NODE, ts=TS, seqno=pk & 0xFFFFFFF,
        user_number=NUMBER,
    )  # fmt: skip
    report_row(days, pk)


def report_row(days: float, pk: int = 0) -> int:
    made = old_id(days)
    at = ids.datetime_of(made)
    SgipReport.objects.create(
        id=made, mt_id=pk, part=1, node=NODE, ts=TS, seqno=7, user_number=NUMBER, state=0,
        error_code=0, received_at=at, archived_at=at,
    )  # fmt: skip
    return made


def received(days: float) -> None:
    """An MO and a user report."""
    at = sql.now() - timedelta(days=days)
    given: dict[str, Any] = {
        "gateway_id": 1, "user_number": NUMBER, "sp_number": "10655", "sequence": "1:2:3",
        "received_at": at, "archived_at": at,
    }  # fmt: skip
    SgipMo.objects.create(
        id=old_id(days), tp_pid=0, tp_udhi=0, message_coding=0, content=b"TD", text="TD", **given
    )
    SgipUserRpt.objects.create(id=old_id(days), user_condition=1, **given)


def by_month() -> None:
    """What the migration does to tables with rows (MariaDB)."""
    partitions.partition(connection, *(table.name for table in ARCHIVE.all_tables()))


def purge(now: datetime | None = None) -> None:
    """Step by step, until nothing goes any more."""
    while retention.purge(ARCHIVE, now or sql.now()):
        pass


def counts() -> list[int]:
    return [model.objects.count() for model in EVERYTHING]


def bounds(table: Table) -> list[int]:
    return [part.bound for part in partitions_of(table) if part.bound]


def kept() -> list[int]:
    return list(SgipMt.objects.order_by("id").values_list("id", flat=True))


def whole(pk: int) -> bool:
    """Whether a message has all its rows."""
    rows = [model.objects.filter(mt_id=pk).count() for model in (SgipMtPart, SgipReport)]
    return SgipMt.objects.filter(pk=pk).exists() and rows == [1, 1]


def before() -> int:
    """Ids below it are older than the archive keeps."""
    return ids.first_id_at(sql.now() - timedelta(days=365))


# -- what goes -----------------------------------------------------------------------------------
def test_old_rows_go_with_all_that_belongs_to_them() -> None:
    for days in (500, 460, 420):
        message(days)
        report_row(days)
        received(days)
    young = [message(days) for days in (364.99, 300, 200, 1)]  # the first one's month has begun
    report_row(300)
    received(300)
    by_month()
    purge()
    assert kept() == young
    assert counts() == [4, 4, 5, 1, 1]
    assert all(map(whole, young))
    for table in ARCHIVE.all_tables() if ON_MARIADB else ():
        assert bounds(table)
        assert min(bounds(table)) > before(), f"a month of {table.name} was not dropped"


def test_rows_that_were_made_in_a_later_month_go_too() -> None:
    """A message that waited for its time, or its Report, has parts with much younger ids."""
    waited = message(500)
    parts_of(waited, 300)
    parts_of(waited, 2)
    young = message(300)
    by_month()
    purge()
    assert kept() == [young]
    assert whole(young)
    assert counts()[:3] == [1, 1, 1]


def test_nothing_goes_when_it_is_kept_for_ever(settings: Settings) -> None:
    settings.SMS_ARCHIVE_DAYS = 0
    old = message(5000)
    by_month()
    purge()
    assert kept() == [old]
    assert retention.overdue(ARCHIVE, sql.now()) == (0.0, "")


def test_tables_without_partitions_are_cleared_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "CHUNK", 3)
    if ON_MARIADB:
        with connection.cursor() as cursor:
            for table in ARCHIVE.all_tables():
                cursor.execute(f"ALTER TABLE {table.name} REMOVE PARTITIONING")
    for _ in range(7):
        parts_of(message(400), 399)
        report_row(400)
    awaited = message(390, "unknown", submitted_days=5)
    young = message(100)
    left = []
    while retention.purge(ARCHIVE, sql.now()):
        left.append(SgipMt.objects.count())
    assert left == [6, 3, 2]
    assert kept() == [awaited, young]
    assert counts() == [2, 2, 2, 0, 0]


# -- what stays ----------------------------------------------------------------------------------
def test_a_month_with_a_message_that_awaits_its_report_stays() -> None:
    gone = message(460)
    awaited = message(430, "unknown", submitted_days=sms.REPORT_DAYS - 1)
    neighbour = message(430)
    later = message(395)
    young = message(10)
    by_month()
    purge()
    assert gone not in kept()
    assert whole(awaited)
    assert whole(young)
    if ON_MARIADB:
        assert kept() == [awaited, neighbour, later, young]
        assert whole(neighbour)
        assert min(bounds(ARCHIVE.tables[0])) > awaited
    purge(sql.now() + timedelta(days=2))  # nobody awaits its Report any more
    assert kept() == [young]
    assert counts()[:3] == [1, 1, 1]


def test_an_unknown_message_that_gets_its_real_ending_goes(shop: Caller) -> None:
    awaited = message(430, "unknown", submitted_days=3)
    by_month()
    purge()
    assert kept() == [awaited]
    item = ReportIn(awaited & 0xFFFFFFF, TS, NODE, NUMBER, 0, 0, sql.now().timestamp())
    assert sms_rows.store.report([item]) == ["unmatched"]
    Pump().turn()
    SgipMt.objects.get(pk=awaited, final="delivered")
    purge()
    assert counts()[:3] == [0, 0, 0]


def test_a_table_that_somebody_reads_is_left_for_later() -> None:
    """Whoever writes to it waits two seconds at most."""
    if not ON_MARIADB:
        return
    old = message(430)
    by_month()
    reading, done = threading.Event(), threading.Event()

    def read() -> None:
        with connections["default"].cursor() as cursor:
            cursor.execute("START TRANSACTION")
            cursor.execute("SELECT COUNT(*) FROM sgip_mt")
            cursor.fetchall()
            reading.set()
            done.wait(60)
            cursor.execute("ROLLBACK")
        connections["default"].close()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        assert reading.wait(60)
        assert retention.purge(ARCHIVE, sql.now()) == 0
        assert kept() == [old]
    finally:
        done.set()
        reader.join()
    purge()
    assert kept() == []


# -- months --------------------------------------------------------------------------------------
def test_months_are_made_ahead() -> None:
    now = sql.now()
    for moment in (now, now, now + timedelta(days=31)):
        partitions.prepare(ARCHIVE, moment)
        for table in ARCHIVE.all_tables() if ON_MARIADB else ():
            found = partitions_of(table)
            # The tables may have been made in the month before.
            assert f"p{now:%Y%m}" in [part.name for part in found[:2]]
            assert found[-1] == ("pmax", 0, None)
            assert sum(not part.is_below(ids.first_id_at(moment)) for part in found) == 4
    if ON_MARIADB:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT COUNT(*) FROM information_schema.partitions WHERE partition_name = %s"
                " AND table_schema = DATABASE() AND table_name LIKE 'sgip%%'",
                [f"p{now:%Y%m}"],
            )
            assert cursor.fetchone() == (5,)


def test_the_migration_partitions_tables_that_hold_rows() -> None:
    if ON_MARIADB:
        with connection.cursor() as cursor:
            for table in ARCHIVE.all_tables():
                cursor.execute(f"ALTER TABLE {table.name} REMOVE PARTITIONING")
                assert partitions_of(table) == []
    rows = [message(days) for days in (100, 40, 1)]
    received(100)
    (operation,) = import_module("gateway.migrations.0002_partitions").Migration.operations
    with connection.schema_editor(atomic=False) as editor:
        operation.code(None, editor)
    assert kept() == rows
    assert counts() == [3, 3, 3, 1, 1]
    for table in ARCHIVE.all_tables() if ON_MARIADB else ():
        assert bounds(table)[0] > rows[0]
        assert len(bounds(table)) >= 5


# -- the pump ------------------------------------------------------------------------------------
def test_the_pump_archives_first_and_clears_when_it_is_idle(shop: Caller) -> None:
    from gateway.forwarder.forwarder import Forwarder

    old = message(430)
    by_month()
    new = send(shop.biz)
    (seqno,) = submit(SmsGateway.objects.get().pk)[new]
    respond(seqno)
    report(seqno)
    Forwarder().turn()
    pump = Pump()
    assert pump.turn() is True
    assert kept() == [old, int(new)]
    turn_until_idle(pump)
    assert kept() == [int(new)]
    assert whole(int(new))
    assert not sms_redis().exists(keys.mt(int(new)))


def turn_until_idle(pump: Pump) -> None:
    while pump.turn():
        pass


def test_two_pumps_at_once(shop: Caller) -> None:
    for days in (500, 460, 430, 400):
        for _ in range(20):
            parts_of(message(days), days - 100)
    young = message(30)
    by_month()
    program = """
def work(number):
    from gateway.pump.pump import Pump
    pump, done = Pump(), 0
    while pump.turn():
        done += 1
    return done
together(work, 2)
"""
    with child(program) as started:
        done = started.heard()
    assert all(isinstance(steps, int) for steps in done), done
    assert sum(done) > 0
    turn_until_idle(Pump())
    assert kept() == [young]
    assert counts()[:3] == [1, 1, 1]


def test_a_pump_killed_in_between_leaves_nothing_behind(shop: Caller) -> None:
    """Where a month was dropped, rows in later ones are left: the next pump finds those."""
    for days in (460, 430):
        parts_of(message(days), 200)
    young = message(30)
    by_month()
    program = "from gateway.pump.pump import Pump\nsay('on')\nPump().turn()\nsay('alive')"
    with child(program, MSGPLATFORM_FAILPOINT="archive_half_gone") as killed:
        assert killed.heard() == "on"
        assert killed.ended() == KILLED
    turn_until_idle(Pump())
    assert kept() == [young]
    assert whole(young)
    assert counts()[:3] == [1, 1, 1]


# -- what people see -----------------------------------------------------------------------------
def test_search_and_timeline_know_nothing_of_what_is_gone(shop: Caller) -> None:
    old, young = message(430), message(30)
    SgipMt.objects.update(biz_id=shop.biz.pk)
    parts_of(old, 30)
    by_month()
    assert {hit.id for hit in engine.search(MESSAGES, NUMBER, 10).hits} == {str(old), str(young)}
    purge()
    assert [hit.id for hit in engine.search(MESSAGES, NUMBER, 10).hits] == [str(young)]
    assert engine.search(MESSAGES, str(old), 10).hits == []
    assert engine.find(MESSAGES, {"reference": f"order-{old}"}, "", 10).hits == []
    assert page_of(str(old)) is None
    page = page_of(str(young))
    assert page
    assert [entry.state for entry in page.timeline].count("attempt") == 1
    found = states.states(shop.biz.pk, [str(old), str(young)])
    assert found.keys() == {str(young)}


def alerts_open() -> list[str]:
    return [alert.kind for alert in Alert.objects.exclude(open_key=None)]


def overdue() -> float:
    (sample,) = [s for s in FLOW.health.metrics() if s.name == "sms_archive_overdue_seconds"]
    return sample.value


def test_somebody_is_told_when_rows_cannot_go(shop: Caller) -> None:
    Biz.objects.get_or_create(name="shop")
    awaited = message(430, "unknown", submitted_days=3)
    by_month()
    turn_until_idle(Pump())
    assert kept() == [awaited]
    assert overdue() > retention.PATIENCE_SECONDS
    assert alerts_open() == ["sms.retention"]
    assert "sgip_mt" in Alert.objects.get().subject
    SgipMt.objects.update(final="delivered")
    turn_until_idle(Pump())
    assert overdue() == 0.0
    assert alerts_open() == []


def test_an_archive_with_nothing_overdue_raises_no_alert(shop: Caller) -> None:
    message(100)
    by_month()
    turn_until_idle(Pump())
    assert (overdue(), alerts_open()) == (0.0, [])


@pytest.mark.parametrize(("days", "schedule", "least"), [(33, 30, 34), (60, 90, 94), (30, 1, 31)])
def test_a_setting_that_is_too_short_is_refused(
    settings: Settings, days: int, schedule: int, least: int
) -> None:
    look: Callable[[], list[Any]] = lambda: checks.archive_outlasts_resending(None)  # noqa: E731
    settings.SMS_ARCHIVE_DAYS, settings.SMS_SCHEDULE_DAYS = days, schedule
    (found,) = look()
    assert found.id == "gateway.E001"
    assert f"to {least} or more" in found.hint
    settings.SMS_ARCHIVE_DAYS = least
    assert look() == []
    settings.SMS_ARCHIVE_DAYS = 0
    assert look() == []
