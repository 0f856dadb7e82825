"""Archiver: what is final moves whole, what is not stays, and no kill loses anything."""

import signal
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from django.db import DatabaseError, DataError, OperationalError, connection, connections
from django.db.models import QuerySet
from django.test.utils import CaptureQueriesContext
from pytest_django.fixtures import Settings

from bench.harness.plans import read_plan
from msgplatform.core.archive import partitions, retention, walk as walk_module
from msgplatform.core.archive.description import DAY
from msgplatform.core.archive.retention import Retention
from msgplatform.core.archive.router import cold_alias
from msgplatform.core.data import ids, sql
from msgplatform.core.errors import UNAVAILABLE, Unavailable
from msgplatform.models import Alert, Biz
from notify.archive import archiver as archiver_module, due, stores
from notify.archive.archiver import Archiver
from notify.archive.retention import ARCHIVE, KEYS, keep_keys
from notify.models import (
    Attempt,
    BizMsg,
    BizReceive,
    ColdAttempt,
    ColdBizMsg,
    ColdReceiveMsg,
    IdempotencyKey,
    ReceiveMsg,
)
from tests.servers import Servers
from tests.support.archive_support import (
    COLD_MODELS,
    Status,
    archive,
    cold_database,
    cold_ids,
    everything,
    hot_ids,
    message,
    old_id,
    place,
    without_months,
)
from tests.support.children import child
from tests.support.notify_rows import subscription

__all__ = ["place"]

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def row() -> BizReceive:
    return subscription(Biz.objects.create(name="orders"))


def test_what_is_final_moves_whole(row: BizReceive, place: str) -> None:
    moved = [
        message(row, Status.DELIVERED, key="k-1"),
        message(row, Status.DELIVERED, Status.SKIPPED, payload=bytes(range(256)) * 40),
        message(row, channel="eu"),
        message(row, Status.DELIVERED, Status.EXHAUSTED, days=40),
        message(row, Status.POISON, days=40),
    ]
    before = everything()
    archive()
    assert (hot_ids(), cold_ids()) == ([], sorted(moved))
    assert everything() == before
    assert ReceiveMsg.objects.count() == Attempt.objects.count() == 0
    assert ColdBizMsg.objects.get(id=moved[0]).key == "k-1"


def test_what_is_not_final_stays(row: BizReceive, place: str) -> None:
    for status in (Status.PENDING, Status.QUEUED, Status.HELD):
        message(row, Status.DELIVERED, status, days=400)
    message(row, Status.DELIVERED, Status.EXHAUSTED, days=20)
    message(row, Status.POISON, days=20)
    message(row, Status.DELIVERED, days=6)
    accepted = message(row, days=50)
    BizMsg.objects.filter(id=accepted).update(state=BizMsg.State.ACCEPTED)
    before = everything()
    archive()
    assert cold_ids() == []
    assert everything() == before


def test_the_columns_of_the_archive_are_those_of_the_hot_tables() -> None:
    """A column that is added to a hot table must be kept, or be named here."""
    working = {"state", "claimed_by", "next_at"}
    for hot, cold in ((BizMsg, ColdBizMsg), (ReceiveMsg, ColdReceiveMsg), (Attempt, ColdAttempt)):
        names = {field.column for field in hot._meta.concrete_fields} - working
        assert names == {f.column for f in cold._meta.concrete_fields} - {
            "key", "archived_at", "restored_at",
        }  # fmt: skip


def test_a_held_message_is_looked_at_seldom(row: BizReceive) -> None:
    """Once at a start, then at each of its ages, which get further and further apart."""
    held = message(row, Status.HELD, days=7.5)
    now = sql.now()
    look = archiver_module.walk(now)
    seen = 0
    for day in range(0, 365, 5):
        while (page := look.page(now + timedelta(days=day))) is not None:
            seen += page.count(held)
    assert 3 <= seen <= 40


def test_a_message_that_became_final_late_moves_at_its_next_age(row: BizReceive) -> None:
    late = message(row, Status.PENDING, days=8)
    now = sql.now()
    look = archiver_module.walk(now)
    while look.page(now) is not None:
        pass
    ReceiveMsg.objects.update(status=Status.DELIVERED)
    found = []
    for day in range(10):
        while (page := look.page(now + timedelta(days=day))) is not None:
            found += page
    assert late in found


def test_a_round_moves_what_was_old_enough_at_its_beginning(
    row: BizReceive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under steady traffic a row reaches its age at any moment: a round must not follow them."""
    now, reaches_age_soon = sql.now(), 7 - 10 / 86400  # days
    monkeypatch.setattr(sql, "now", lambda: now)
    old = message(row, Status.DELIVERED, days=8)
    younger = message(row, Status.DELIVERED, days=reaches_age_soon)
    worker = Archiver()
    assert worker.turn() is True
    monkeypatch.setattr(sql, "now", lambda: now + timedelta(seconds=15))
    while worker.turn():
        pass
    assert cold_ids() == [old]
    worker._next_round.at_once()
    while worker.turn():
        pass
    assert cold_ids() == sorted([old, younger])


def test_messages_move_while_old_ones_cannot_be_deleted(
    row: BizReceive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round that never ends, because the database refuses each purge, looks at new ones too."""

    def refuse(*_arguments: object) -> int:
        raise OperationalError(1142, "DELETE command denied")

    monkeypatch.setattr(retention, "purge", refuse)
    monkeypatch.setattr(retention, "EVERY_SECONDS", 0.0)
    old, younger = message(row, Status.DELIVERED, days=8), message(row, Status.DELIVERED, days=6.9)
    worker = Archiver()
    today = sql.now()
    for now in (today, today + timedelta(days=1)):
        monkeypatch.setattr(sql, "now", partial(lambda fixed: fixed, now))
        assert worker.turn() is True
        with pytest.raises(OperationalError, match="denied"):
            worker.turn()
    assert cold_ids() == sorted([old, younger])


def test_a_purge_deletes_what_was_too_old_at_its_beginning(row: BizReceive) -> None:
    """Under steady traffic a row becomes too old at any moment: a purge must not follow them."""
    days = keep_keys() / DAY
    message(row, days=days + 1, key="too old")
    message(row, days=days - 1, key="too old tomorrow")
    purge, now = Retention(KEYS).purge, sql.now()
    assert purge(now) is True
    assert purge(now + timedelta(days=2)) is False
    assert IdempotencyKey.objects.get().key == "too old tomorrow"


def test_an_idle_turn_writes_nothing(row: BizReceive) -> None:
    message(row, Status.HELD, days=50)
    worker = archive()
    worker._next_round.at_once()
    worker._retention, worker._keys = Retention(ARCHIVE), Retention(KEYS)
    with CaptureQueriesContext(connection) as captured:
        assert worker.turn() is False
    words = [q["sql"].split()[0].upper() for q in captured]
    assert set(words) <= {"SELECT"}, words


@pytest.mark.parametrize("point", ["after_copy", "after_verify", "before_delete_commit"])
def test_a_kill_at_any_point_loses_nothing(row: BizReceive, place: str, point: str) -> None:
    for n in range(30):
        message(row, Status.DELIVERED, Status.SKIPPED, payload=b"%d" % n)
    before = everything()
    program = (
        "from notify.archive.archiver import Archiver\nsay('on')\nArchiver().turn()\nsay('alive')"
    )
    with child(program, MSGPLATFORM_FAILPOINT=f"archiver_{point}") as killed:
        assert killed.heard() == "on"
        assert killed.process.wait(timeout=300) == -signal.SIGKILL
    assert everything() == before
    assert len(hot_ids()) == 30
    changed = hot_ids()[7]
    ReceiveMsg.objects.filter(msg_id=changed, status=Status.DELIVERED).update(status=Status.PENDING)
    archive()
    assert hot_ids() == [changed]
    ReceiveMsg.objects.filter(msg_id=changed).update(status=Status.DELIVERED, send_times=9)
    archive()
    assert hot_ids() == []
    assert everything().keys() == before.keys()
    (delivery,) = ColdReceiveMsg.objects.filter(msg_id=changed, biz_receive_id=row.pk)
    assert (delivery.status, delivery.send_times) == (Status.DELIVERED, 9)
    assert ColdReceiveMsg.objects.count() == ColdAttempt.objects.count() == 60


def test_a_message_that_changed_since_it_was_chosen_stays(row: BizReceive, place: str) -> None:
    changed, other = message(row, Status.DELIVERED), message(row, Status.DELIVERED)
    limits = due.Due.at(sql.now())
    assert limits.read_movable([changed, other]) == [changed, other]
    ReceiveMsg.objects.filter(msg_id=changed).update(status=Status.PENDING)
    assert archiver_module.move([changed, other], limits) == 1
    assert (hot_ids(), cold_ids()) == ([changed], [other])


def test_a_change_waits_until_the_message_has_moved(row: BizReceive, place: str) -> None:
    """A resend during the move finds the delivery gone; it is never half there."""
    pk = message(row, Status.EXHAUSTED, days=60)
    program = f"""
from notify.archive import archiver, due
from msgplatform.core.archive.copying import Part
from msgplatform.core.data import sql
verify = Part.verify
def slowly(part):
    found = verify(part)
    if part.source.__name__ == "BizMsg":
        wait()
    return found
Part.verify = slowly
say(archiver.move([{pk}], due.Due.at(sql.now())))
"""
    (delivery,) = ReceiveMsg.objects.values_list("id", flat=True)
    resend = f"""
from msgplatform.core.data import sql
from notify.actions.resend import FAILED, resend_hot
say("on")
say(resend_hot([{delivery}], [*FAILED.values(), 3], sql.now()))
"""
    with child("wait()\n" + resend) as other:
        # First: while it starts, the database would take the mover for one that hangs.
        other.ready()
        with child(program) as mover:
            mover.ready()
            other.go()
            assert other.heard() == "on"
            mover.go()
            assert mover.heard() == 1
            assert other.heard() == 0
    assert (hot_ids(), cold_ids()) == ([], [pk])
    assert ColdReceiveMsg.objects.get().status == Status.EXHAUSTED


def test_several_archivers_at_once(row: BizReceive, place: str) -> None:
    for _ in range(200):
        message(row, Status.DELIVERED, Status.SKIPPED)
    before = everything()
    program = """
def work(number):
    from notify.archive.archiver import Archiver
    archiver = Archiver()
    while archiver.turn():
        pass
    return archiver.heartbeat.done
together(work, 3)
"""
    with child(program) as started:
        done = started.heard()
    assert sum(done) == 200
    assert hot_ids() == []
    assert everything() == before


def test_what_was_not_copied_right_is_not_deleted(
    row: BizReceive, place: str, monkeypatch: pytest.MonkeyPatch, work_redis: object
) -> None:
    good, bad = message(row, Status.DELIVERED), message(row, Status.DELIVERED)
    copy = archiver_module.copy_to_archive

    def damaged(parts: list) -> None:
        copy(parts)
        ColdBizMsg.objects.filter(id=bad).update(payload=b"other")

    monkeypatch.setattr(archiver_module, "copy_to_archive", damaged)
    worker = archive()
    assert hot_ids() == [bad]
    assert good in cold_ids()
    assert worker.heartbeat.failed == 1
    assert Alert.objects.get(kind="notify.archive").open_key


def test_a_copy_that_the_archive_does_not_commit_deletes_nothing(
    row: BizReceive, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pk = message(row, Status.DELIVERED)
    before, limits = everything(), due.Due.at(sql.now())

    def refuse() -> None:
        raise DatabaseError("COMMIT is refused")

    with monkeypatch.context() as patches:
        patches.setattr(connections[cold_alias()], "commit", refuse)
        with pytest.raises(DatabaseError, match="COMMIT is refused"):
            archiver_module.move([pk], limits)
    assert (hot_ids(), cold_ids()) == ([pk], [])
    assert everything() == before
    assert archiver_module.move([pk], limits) == 1
    assert (hot_ids(), cold_ids()) == ([], [pk])


def test_chunks_are_bounded(row: BizReceive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(due, "MAX_BYTES", 1000)
    monkeypatch.setattr(due, "MAX_DELIVERIES", 4)
    shapes = ((1, 10), (1, 900), (1, 200), (3, 1), (2, 1), (9, 5000), (0, 1))
    pks = [message(row, *[Status.DELIVERED] * n, payload=b"1" * size) for n, size in shapes]
    cut = [len(chunk) for chunk in due.bounded_chunks(pks, stores.hot())]
    assert cut == [2, 2, 1, 1, 1]


# -- retention -----------------------------------------------------------------------------------
def test_old_months_go(row: BizReceive, place: str, settings: Settings) -> None:
    without_months(ARCHIVE)
    old = [message(row, Status.DELIVERED, days=500) for _ in range(3)]
    # The month of the first one began before what is kept.
    kept = [message(row, Status.DELIVERED, days=days) for days in (364.99, 100, 100)]
    settings.NOTIFY_ARCHIVE_DAYS = 0  # for ever
    archive()
    assert retention.purge(ARCHIVE, sql.now()) == 0
    assert cold_ids() == sorted(old + kept)
    settings.NOTIFY_ARCHIVE_DAYS = 365
    while retention.purge(ARCHIVE, sql.now()):
        pass
    assert cold_ids() == sorted(kept)
    assert ColdReceiveMsg.objects.count() == ColdAttempt.objects.count() == 3


def test_months_are_partitions_on_mariadb(row: BizReceive, place: str) -> None:
    if connection.vendor != "mysql":
        partitions.prepare(ARCHIVE, sql.now())  # does nothing
        return
    without_months(ARCHIVE)
    message(row, Status.DELIVERED, days=100)
    archive()
    now = sql.now()
    for table in ARCHIVE.all_tables():
        found = partitions.partitions_of(table)
        assert f"p{now:%Y%m}" in [part.name for part in found]
        assert found[-1] == ("pmax", 0, None)
        # this month, two ahead, and what is in use already
        assert sum(not part.is_below(ids.first_id_at(now)) for part in found) == 4
        assert len(found) >= 6
    with connections[place].cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM biz_msg_cold PARTITION (pmax)")
        assert cursor.fetchone() == (0,)
    later = now + timedelta(days=31)
    partitions.prepare(ARCHIVE, later)
    assert partitions.partitions_of(table)[:-1] > found[:-1]
    partitions.prepare(ARCHIVE, later)


def test_keys_are_purged_after_the_longest_retry(row: BizReceive) -> None:
    days = keep_keys() / DAY
    assert days > 30
    old = message(row, Status.HELD, days=days + 1, key="old")
    young = message(row, Status.HELD, days=days - 1, key="young")
    archive()
    assert list(IdempotencyKey.objects.values_list("id", flat=True)) == [young]
    assert hot_ids() == [old, young]


# -- an archive that is unavailable --------------------------------------------------------------
def test_an_archive_that_is_away_stops_nothing_and_loses_nothing(
    row: BizReceive, servers: Servers, tmp_path: Path
) -> None:
    message(row, Status.DELIVERED)
    before = everything()
    server = servers.mariadb() if connection.vendor == "mysql" else None
    with cold_database(tmp_path, server):
        connections["cold"].close()
        settings = connections["cold"].settings_dict
        name, settings["NAME"] = settings["NAME"], "/no/such/place"
        worker = Archiver()
        with pytest.raises(UNAVAILABLE):
            archive(worker)
        connections["cold"].close()
        assert len(hot_ids()) == 1
        settings["NAME"] = name
        archive(worker)
        assert hot_ids() == []
        assert everything() == before
        assert all(model.objects.using("cold").count() for model in COLD_MODELS)


def open_alerts() -> list[str]:
    return list(Alert.objects.exclude(open_key=None).values_list("kind", flat=True))


def test_months_that_cannot_be_made_stop_nothing(
    row: BizReceive, settings: Settings, monkeypatch: pytest.MonkeyPatch, work_redis: object
) -> None:
    def refused(*_given: object) -> None:
        raise OperationalError(1142, "ALTER command denied")

    settings.NOTIFY_ARCHIVE_DAYS = 365
    without_months(ARCHIVE)
    old, young = (message(row, Status.DELIVERED, days=days) for days in (500, 10))
    archiver_module.move([old], due.Due.at(sql.now()))
    with monkeypatch.context() as patched:
        patched.setattr(partitions, "prepare", refused)
        worker = archive()
    assert young in cold_ids()
    assert connection.vendor == "mysql" or old not in cold_ids()
    assert open_alerts() == ["notify.retention"]
    assert "ALTER command denied" in Alert.objects.get().text
    for timer in (worker._next_round, worker._retention._next_prepare):
        timer.at_once()
    worker._retention._next_purge.at_once()
    archive(worker)
    assert open_alerts() == []


def test_an_archive_that_takes_nothing_is_told_once(
    row: BizReceive, settings: Settings, work_redis: object
) -> None:
    settings.NOTIFY_ARCHIVE_DAYS = 365
    without_months(ARCHIVE)
    old = message(row, Status.DELIVERED, days=500)
    archiver_module.move([old], due.Due.at(sql.now()))
    pks = [message(row, Status.DELIVERED) for _ in range(3)]
    rename = "ALTER TABLE biz_msg_cold RENAME COLUMN"
    worker = Archiver()
    with connection.cursor() as cursor:
        cursor.execute(f"{rename} archived_at TO elsewhere")
        try:
            for _ in range(2):
                with pytest.raises(OperationalError):
                    archive(worker)
            cursor.execute("SELECT COUNT(*) FROM biz_msg_cold")
            assert cursor.fetchone() == ((0,) if connection.vendor == "sqlite" else (1,))
        finally:
            cursor.execute(f"{rename} elsewhere TO archived_at")
    assert hot_ids() == pks
    assert open_alerts() == ["notify.archive"]
    archive(worker)
    assert (hot_ids(), open_alerts()) == ([], [])


def test_the_alert_stays_while_nothing_moves(
    row: BizReceive, monkeypatch: pytest.MonkeyPatch, work_redis: object
) -> None:
    """Pages of messages that may not move yet come before, and say nothing."""

    def full(parts: list) -> None:
        raise OperationalError(1021, "Disk full")

    monkeypatch.setattr(walk_module, "PAGE", 2)
    kept = [message(row, Status.EXHAUSTED, days=10) for _ in range(2)]
    ready = message(row, Status.DELIVERED, days=9)
    worker = Archiver()
    with monkeypatch.context() as patched:
        patched.setattr(archiver_module, "copy_to_archive", full)
        for _ in range(6):
            with suppress(OperationalError):
                worker.turn()
    (alert,) = Alert.objects.filter(kind="notify.archive")
    assert alert.open_key
    archive(worker)
    assert (hot_ids(), cold_ids(), open_alerts()) == (kept, [ready], [])


def test_a_message_that_is_too_large_holds_up_no_other(
    row: BizReceive, monkeypatch: pytest.MonkeyPatch, work_redis: object
) -> None:
    large, other = message(row, Status.DELIVERED), message(row, Status.DELIVERED)
    copy = archiver_module.copy_to_archive

    def limited(parts: list) -> None:
        if large in parts[0].keys:
            raise DataError(1153, "Got a packet bigger than 'max_allowed_packet' bytes")
        copy(parts)

    monkeypatch.setattr(archiver_module, "copy_to_archive", limited)
    archive()
    assert (hot_ids(), cold_ids()) == ([large], [other])
    assert str(large) in Alert.objects.get(kind="notify.archive").subject


def plan(rows: QuerySet) -> list[dict]:
    """The plan: a dict of its columns for each table."""
    statement, parameters = rows.query.sql_with_params()
    with connection.cursor() as cursor:
        return read_plan(cursor, statement, parameters)


def test_an_archive_without_tables_says_what_to_do(row: BizReceive, place: str) -> None:
    if place == "default":
        return
    pk = message(row, Status.DELIVERED)
    with connections["cold"].cursor() as cursor:
        cursor.execute("ALTER TABLE attempt_cold RENAME TO gone")
    with pytest.raises(Unavailable, match="migrate --database cold"):
        archive()
    assert hot_ids() == [pk]


def test_nothing_but_the_archive_is_migrated_into_its_database(place: str) -> None:
    tables = set(connections["cold"].introspection.table_names()) if place == "cold" else set()
    names = {table.name for table in ARCHIVE.all_tables()}
    assert tables <= {*names, "django_migrations"}
    assert not tables or names < tables


def test_what_cannot_move_costs_an_index_entry(row: BizReceive) -> None:
    """Candidates come from (state, id) alone, deliveries by message; no table is read through."""
    for _ in range(300):
        message(row, Status.DELIVERED)
    if connection.vendor != "mysql":
        return
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE TABLE biz_msg, receive_msg, attempt")
    (line,) = plan(due.candidates(old_id(400), old_id(0)))
    assert line["key"] == "biz_msg_to_split"
    assert line["Extra"] == "Using where; Using index"
    deliveries = ReceiveMsg.objects.filter(msg_id__in=hot_ids()[:20]).order_by()
    (line,) = plan(deliveries.values_list("msg_id", "status"))
    assert line["key"] == "receive_msg_once"
