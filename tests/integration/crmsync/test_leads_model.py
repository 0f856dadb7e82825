"""UpdateTime and version of a lead: set by the database, whoever writes."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from crmsync.models import Lead, lead_triggers
from msgplatform.core.data import ids
from msgplatform.models import Biz

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]
LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)


def run(statement: str, *parameters: Any) -> int:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return int(cursor.rowcount)


@pytest.fixture
def biz(db: None) -> Biz:
    return Biz.objects.create(name="cars")


def lead(biz: Biz, **fields: Any) -> Lead:
    return Lead.objects.create(
        id=ids.reserve(1).ids([0])[0], biz=biz, appkey="ad", name="王小明", **fields
    )


def written(pk: int) -> tuple[datetime, int]:
    row: tuple[datetime, int] = Lead.objects.values_list("update_time", "version").get(pk=pk)
    return row


def is_now(moment: datetime) -> bool:
    """By this machine's clock, in UTC: eight hours off is seen, a busy machine is not."""
    return abs(datetime.now(UTC) - moment) < timedelta(minutes=5)


def test_an_insert(biz: Biz) -> None:
    made = lead(biz, update_time=LONG_AGO, version=77)
    moment, version = written(made.pk)
    assert is_now(moment)
    assert version == 1


def test_raw_sql_inserts_without_naming_them(biz: Biz) -> None:
    run(
        "INSERT INTO `lead` (id, biz_id, appkey, uid, name, phone, extra) "
        "VALUES (7, %s, 'ad', '', 'A', '', '{}')",
        biz.pk,
    )
    moment, version = written(7)
    assert is_now(moment)
    assert version == 1
    assert Lead.objects.get(pk=7).is_delete is False


def test_raw_sql_inserts_and_names_them(biz: Biz) -> None:
    run(
        "INSERT INTO `lead` (id, biz_id, appkey, uid, name, phone, extra, version, UpdateTime) "
        "VALUES (7, %s, 'ad', '', 'A', '', '{}', 9, '2001-01-01')",
        biz.pk,
    )
    moment, version = written(7)
    assert is_now(moment)
    assert version == 1


def by_save(row: Lead) -> None:
    row.name = "李"
    row.save()


def by_save_of_an_old_copy(row: Lead) -> None:
    """It writes the UpdateTime and the version that it was read with."""
    row.update_time, row.version = LONG_AGO, 1
    row.save()


def by_update(row: Lead) -> None:
    assert Lead.objects.filter(pk=row.pk).update(phone="13800000000") == 1


def by_update_of_the_time(row: Lead) -> None:
    Lead.objects.filter(pk=row.pk).update(is_delete=True, update_time=LONG_AGO, version=0)


def by_raw_sql(row: Lead) -> None:
    assert run("UPDATE `lead` SET IsDelete = 1 WHERE id = %s", row.pk) == 1


def by_bulk_update(row: Lead) -> None:
    row.uid = "u"
    Lead.objects.bulk_update([row], ["uid"])


@pytest.mark.parametrize(
    "change",
    [by_save, by_save_of_an_old_copy, by_update, by_update_of_the_time, by_raw_sql, by_bulk_update],
)
def test_every_update(biz: Biz, change: Callable[[Lead], None]) -> None:
    row = lead(biz)
    other = lead(biz)
    first, untouched = written(row.pk), written(other.pk)
    for _ in range(3):
        before, version = written(row.pk)
        _wait_for_the_clock(before)
        change(Lead.objects.get(pk=row.pk))
        moment, found = written(row.pk)
        assert version < found
        assert found - moment.timestamp() < 4, "a second, or the next number"
        assert before < moment
    assert is_now(first[0])
    assert is_now(written(row.pk)[0])
    assert written(other.pk) == untouched


def _wait_for_the_clock(moment: datetime) -> None:
    """SQLite's has milliseconds."""
    while datetime.now(UTC) <= moment + timedelta(milliseconds=1):
        time.sleep(0.001)


def test_many_rows_in_one_statement(biz: Biz) -> None:
    rows = [lead(biz) for _ in range(3)]
    assert run("UPDATE `lead` SET name = 'B'") == 3
    assert all(written(row.pk)[1] > 1 for row in rows)


def test_versions_go_on_after_a_restore(biz: Biz) -> None:
    """CRMs have seen the versions after the backup."""
    row = lead(biz)
    for _ in range(3):
        by_raw_sql(row)
    seen = written(row.pk)[1]
    Lead.objects.all().delete()
    Lead.objects.create(id=row.pk, biz=biz, appkey="ad")  # as it was in the backup
    assert written(row.pk)[1] == 1
    while datetime.now(UTC).timestamp() <= seen + 1:
        time.sleep(0.1)
    by_raw_sql(row)
    assert written(row.pk)[1] > seen


def test_it_has_microseconds_and_compares_as_read(biz: Biz) -> None:
    """A cursor at a row finds this row again, as equal."""
    rows = [lead(biz) for _ in range(20)]
    for row in rows:
        moment = written(row.pk)[0]
        assert list(Lead.objects.filter(update_time=moment, pk=row.pk)) == [row]
        assert not Lead.objects.filter(update_time__gt=moment, pk=row.pk).exists()
    assert any(written(row.pk)[0].microsecond % 1000 for row in rows)


def test_the_time_zone_of_a_session_does_not_matter(biz: Biz) -> None:
    if connection.vendor == "mysql":
        # The server of this run is in +08:00 too.
        run("SET time_zone = '-07:00'")
    try:
        made = lead(biz)
        run("UPDATE `lead` SET name = 'B' WHERE id = %s", made.pk)
        with connection.cursor() as cursor:
            cursor.execute("SELECT UpdateTime FROM `lead` WHERE id = %s", [made.pk])
            (stored,) = cursor.fetchone()
    finally:
        connection.close()
    moment = stored if isinstance(stored, datetime) else datetime.fromisoformat(stored)
    assert is_now(moment.replace(tzinfo=UTC))
    assert is_now(written(made.pk)[0])


def test_a_rolled_back_change_leaves_nothing(biz: Biz) -> None:
    row = lead(biz)
    before = written(row.pk)
    connection.set_autocommit(False)
    try:
        by_raw_sql(row)
        assert written(row.pk)[1] > 1
        connection.rollback()
    finally:
        connection.set_autocommit(True)
    assert written(row.pk) == before


def test_the_migration_can_be_undone_and_repeated(biz: Biz) -> None:
    call_command("migrate", "crmsync", "0001", verbosity=0)
    row = lead(biz)
    by_raw_sql(row)
    assert written(row.pk)[1] == 1
    call_command("migrate", "crmsync", verbosity=0)
    by_raw_sql(row)
    assert written(row.pk)[1] > 1


def test_a_lead_that_changes_while_migrate_renews_the_triggers(biz: Biz) -> None:
    row, versions, over = lead(biz), [1], threading.Event()

    def change() -> None:
        while not over.is_set():
            by_raw_sql(row)
            versions.append(written(row.pk)[1])
        connection.close()

    if connection.vendor == "sqlite":  # one writer at a time, and one transaction for all of it
        over.set()
    with ThreadPoolExecutor(1) as pool:
        changes = pool.submit(change)
        try:
            for _ in range(20):
                run("DROP TRIGGER lead_on_insert")
                lead_triggers.renew("default")
        finally:
            over.set()
        changes.result()
    assert lead_triggers.problem(connection) == ""
    assert versions == sorted(set(versions)), "a change without a new version"
