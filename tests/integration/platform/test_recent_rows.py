"""Lists of tables that only grow: what no index serves is looked for among the newest rows."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from msgplatform.core.data import sql
from msgplatform.doors.admin import rows as list_rows
from msgplatform.models import AuditLog
from tests.support import table_rows

pytestmark = [
    pytest.mark.both_databases,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis"),
]
AUDIT = "/admin/msgplatform/auditlog/"
ROWS, LOOKED_AT = 5_000, 200
MINUTE = timedelta(minutes=1)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> datetime:
    monkeypatch.setattr(list_rows, "MAX_RECENT_ROWS", LOOKED_AT)
    return timezone.now().replace(second=0, microsecond=0)


@pytest.fixture
def entries(now: datetime) -> None:
    """An entry a minute; the first one is about a system that is in no other one."""
    table_rows.insert_like(
        AuditLog(actor="ann", action="system_changed", detail={}),
        ("id", "at", "action", "target"),
        (
            (n + 1, sql.stored(now - (ROWS - n) * MINUTE), "key_revoked" if n == 9 else "changed",
             f"system-{n % 7}" if n else "museum")
            for n in range(ROWS)
        ),
    )  # fmt: skip
    with connection.cursor() as cursor:
        table = "TABLE " if connection.vendor == "mysql" else ""
        cursor.execute(f"ANALYZE {table}msgplatform_auditlog")
        cursor.fetchall()


def shown(client: Client, address: str) -> Any:
    answer = client.get(address)
    assert answer.status_code == 200, address
    found = answer.context["cl"]
    # The sentence comes with the bound, and only then.
    assert ("Only the newest" in answer.content.decode()) == bool(found.recent_limit)
    return found


def until(moment: datetime) -> str:
    return timezone.localtime(moment).strftime("%Y-%m-%dT%H:%M")


def rows_read() -> int:
    """What this session has read from tables and indexes."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%%'")
        return sum(int(value) for _name, value in cursor.fetchall())


@pytest.mark.usefixtures("entries")
def test_a_word_is_looked_for_in_the_newest_entries(admin_client: Client, now: datetime) -> None:
    found = shown(admin_client, f"{AUDIT}?q=tem-3")
    assert found.recent_limit == LOOKED_AT
    assert 0 < found.result_count <= LOOKED_AT / 7 + 1
    assert {row.target for row in found.result_list} == {"system-3"}
    assert not shown(admin_client, f"{AUDIT}?q=museum").result_list
    # As the sentence says: a time looks further back.
    earlier = until(now - (ROWS - LOOKED_AT // 2) * MINUTE)
    older = shown(admin_client, f"{AUDIT}?q=museum&at_until={earlier}")
    assert [row.target for row in older.result_list] == ["museum"]
    assert older.recent_limit == 0


@pytest.mark.usefixtures("entries")
def test_masked_entries_are_looked_for_in_the_newest_ones(now: datetime) -> None:
    user = User.objects.create_user("looker", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename="view_auditlog"))
    client = Client()
    client.force_login(user)
    with CaptureQueriesContext(connection) as made:
        assert not shown(client, f"{AUDIT}?q=museum").result_list
    searched = [q["sql"] for q in made if "museum" in q["sql"]]
    assert searched
    assert all(f">= {ROWS - LOOKED_AT + 1}" in statement for statement in searched)
    assert shown(client, f"{AUDIT}?q=tem-3").result_count
    earlier = until(now - (ROWS - LOOKED_AT // 2) * MINUTE)
    (older,) = shown(client, f"{AUDIT}?q=museum&at_until={earlier}").result_list
    assert older.pk == 1
    assert not shown(client, f"{AUDIT}?q=museum&at_since={until(now + MINUTE)}").result_list


@pytest.mark.usefixtures("entries")
def test_a_time_and_an_action_are_indexes(admin_client: Client, now: datetime) -> None:
    (rare,) = shown(admin_client, f"{AUDIT}?action=key_revoked").result_list
    assert rare.pk == 10
    since, before = (until(now - minutes * MINUTE) for minutes in (120, 100))
    some = shown(admin_client, f"{AUDIT}?at_since={since}&at_until={before}")
    assert some.result_count == 20
    assert some.result_list[0].at < now - 100 * MINUTE <= some.result_list[0].at + MINUTE
    assert not shown(admin_client, f"{AUDIT}?at_since={until(now + MINUTE)}").result_list


@pytest.mark.usefixtures("entries")
def test_no_list_reads_a_table(admin_client: Client) -> None:
    if connection.vendor == "sqlite":  # it does not count what it reads
        return
    for address in (
        AUDIT, f"{AUDIT}?q=museum", f"{AUDIT}?action=changed", f"{AUDIT}?action=key_revoked",
        f"{AUDIT}?action=changed&q=museum",
    ):  # fmt: skip
        shown(admin_client, address)
        before = rows_read()
        shown(admin_client, address)
        # The number of pages is counted up to a bound that is above the rows of this test: they are
        # read, and read again from the derived table.
        counted = 2 * ROWS if "q=" not in address else 0
        assert rows_read() - before < counted + ROWS / 4, address
