"""Tables of Notify with many rows, and how much of them a statement reads."""

import random
import re

from django.core.management.color import no_style
from django.db import connection
from django.utils import timezone

from bench.harness.plans import read_plan
from msgplatform.core.data import ids, sql
from msgplatform.models import Biz
from notify.models import BizMsg, BizReceive, ColdBizMsg, ReceiveMsg
from tests.support import table_rows
from tests.support.archive_support import old_id
from tests.support.notify_rows import subscription

ROWS = 20_000
ROWS_OF_STORE = 1000


def fill() -> list[BizReceive]:
    """Skewed over 10 systems and 40 subscriptions: the first has most of it, the last a few."""
    rng = random.Random(7)
    systems = [Biz.objects.create(name=f"system-{n}") for n in range(10)]
    rows = [subscription(biz, f"consumer-{n}") for biz in systems for n in range(4)]
    weights = [1 / (n + 1) ** 1.5 for n in range(len(rows))]
    made = ids.reserve(2 * ROWS).ids([rng.randrange(256) for _ in range(2 * ROWS)])
    now = timezone.now()
    statuses = rng.choices(list(ReceiveMsg.Status), [3, 1, 1, 90, 4, 0.1, 0.9], k=ROWS)
    owners = rng.choices(rows, weights, k=ROWS)
    table_rows.insert_like(
        BizMsg(event_type="order.paid", payload=b"{}", state=1, created_at=now),
        ("id", "biz_id"),
        ((number, row.biz_id) for number, row in zip(made[:ROWS], owners, strict=True)),
    )
    table_rows.insert_like(
        ReceiveMsg(next_at=now, created_at=now, updated_at=now),
        ("id", "msg_id", "biz_id", "biz_receive_id", "status"),
        (
            (number, message, row.biz_id, row.pk, status.value)
            for number, message, row, status in zip(
                made[ROWS:], made[:ROWS], owners, statuses, strict=True
            )
        ),
    )
    with connection.cursor() as cursor:
        tables = ("biz_msg", "receive_msg")
        for table in tables:
            cursor.execute(
                f"ANALYZE TABLE {table}" if connection.vendor == "mysql" else f"ANALYZE {table}"
            )
            cursor.fetchall()
    return rows


def wrong_steps(statement: str) -> list[str]:
    """Steps of a plan that read a whole hot table, or sort rows instead of ids."""
    with connection.cursor() as cursor:
        plan = read_plan(cursor, statement)
    if connection.vendor == "sqlite":
        details = [step["detail"] for step in plan]
        hot = re.compile(r"SCAN (biz_msg|receive_msg)\b(?!.* USING )")
        return [d for d in details if hot.match(d)]
    wrong = []
    for step in plan:
        if step["table"] not in ("biz_msg", "receive_msg"):
            continue
        extra = step["Extra"] or ""
        searching = "Using where" in extra and int(step["rows"]) > ROWS / 2
        if step["type"] == "ALL" or (step["type"] == "index" and searching):
            wrong.append(f"reads all of {step['table']}")
        # A few dozen rows may be sorted as they are; more only by what the index holds.
        if "filesort" in extra and "Using index" not in extra and int(step["rows"]) > 500:
            wrong.append(f"sorts {step['rows']} rows of {step['table']}")
    return wrong


def rows_read() -> int:
    """The rows that this session has read from tables and indexes; SQLite does not count them."""
    if connection.vendor != "mysql":
        return 0
    with connection.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%%'")
        return sum(int(value) for _name, value in cursor.fetchall())


def two_stores(biz_id: int) -> None:
    """So many messages in each store, of two systems and five types. The tables are new: what
    earlier tests left of theirs counts in the server's statistics."""
    tables = [BizMsg._meta.db_table, ColdBizMsg._meta.db_table]
    if connection.vendor == "mysql":
        new = connection.ops.sql_flush(no_style(), tables, reset_sequences=True)
        connection.ops.execute_sql_flush(new)
    at = sql.now()
    fields = [
        {"biz_id": biz_id + n % 2, "event_type": f"type.n{n % 5}", "payload": b"{}"}
        for n in range(ROWS_OF_STORE)
    ]
    BizMsg.objects.bulk_create(BizMsg(id=old_id(1), created_at=at, **of) for of in fields)
    ColdBizMsg.objects.bulk_create(
        ColdBizMsg(id=old_id(50), created_at=at, archived_at=at, **of) for of in fields
    )
    with connection.cursor() as cursor:
        for table in tables:
            cursor.execute(
                f"ANALYZE TABLE {table}" if connection.vendor == "mysql" else f"ANALYZE {table}"
            )
            cursor.fetchall()
