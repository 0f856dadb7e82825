"""Fills Notify's tables with any number of messages, hot and archived, made inside the server.

What is made: business systems of which the first has half of all messages, two subscriptions each
(one normal, one paused, which wants other events), messages of the last week in the hot tables and
as many of the eight weeks before in the archive. Of the hot deliveries 85 % are delivered, 5 %
exhausted, 5 % pending until some hours from now, 3 % held and 2 % skipped. Keys are random, as
UUIDs are.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.utils import timezone

from bench.harness.mariadb import digest, numbers
from bench.harness.processes import BenchFailed
from msgplatform.core.archive import partitions
from msgplatform.core.data import ids
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
from notify.archive.retention import ARCHIVE
from notify.models import BizMsg, BizReceive, Receive, ReceiveMsg

SYSTEMS = 50
_HOT_DAYS, _COLD_DAYS = 7, 56
_CHUNK = 250_000  # a statement must end within the connection's read timeout
_STRETCHED = _COLD_DAYS // _HOT_DAYS
_LOW = (1 << ids.TICK_SHIFT) - 1
_State = ReceiveMsg.Status


@dataclass(frozen=True)
class Heavy:
    """The business system with half of all messages, and its subscription that is not paused."""

    biz: Biz
    token: str
    subscription: BizReceive


def cast(url: str) -> Heavy:
    """Make systems and subscriptions; a bench sends through those of the first system."""
    systems = Biz.objects.bulk_create(Biz(name=f"system-{n}") for n in range(SYSTEMS))
    systems = list(Biz.objects.filter(name__startswith="system-").order_by("id"))
    receivers = [
        Receive.objects.create(name=f"consumer-{n}-{kind}", url=url)
        for n in range(SYSTEMS)
        for kind in ("a", "b")
    ]
    for number, biz in enumerate(systems):
        BizReceive.objects.create(biz=biz, receive=receivers[2 * number])
        BizReceive.objects.create(
            biz=biz, receive=receivers[2 * number + 1], status=BizReceive.Status.PAUSED,
            event_types=["stock.*"],
        )  # fmt: skip
    _, token = keys.create(systems[0], "bench", ["events:write"])
    subscription = BizReceive.objects.get(biz=systems[0], status=BizReceive.Status.NORMAL)
    return Heavy(systems[0], token, subscription)


def fill(rows: int, say: Callable[[str], None]) -> None:
    """Write `rows` messages into the hot and into the cold tables of the connected database."""
    now = timezone.now()
    for months in (3, 0):  # so that there are partitions from the oldest month on
        partitions.prepare(ARCHIVE, now - timedelta(days=30 * months))
    with connection.cursor() as cursor:
        # An empty table is filled by sorting, without checking each row against the others.
        cursor.execute("SET SESSION unique_checks = 0, foreign_key_checks = 0")
        cursor.execute("SET SESSION innodb_lock_wait_timeout = 600")
        _systems(cursor)
        for first in range(1, rows + 1, _CHUNK):
            begun, last = time.monotonic(), min(rows, first + _CHUNK - 1)
            made = []
            for statement in _statements(rows, now, first, last):
                cursor.execute(statement)
                made.append(cursor.rowcount)
            if {made[0], made[1], made[2]} != {last - first + 1}:
                raise BenchFailed(f"{made} rows were made instead of {last - first + 1} each")
            say(f"{last:,} of {rows:,} messages, {time.monotonic() - begun:.0f} s")
        cursor.execute("SET SESSION unique_checks = 1, foreign_key_checks = 1")
        for table in (
            "idempotency", "biz_msg", "receive_msg", "attempt",
            "biz_msg_cold", "receive_msg_cold", "attempt_cold",
        ):  # fmt: skip
            cursor.execute(f"ANALYZE TABLE {table}")
            cursor.fetchall()


def _systems(cursor: Any) -> None:
    """Make a table: each system by its number, with its two subscriptions."""
    cursor.execute("DROP TEMPORARY TABLE IF EXISTS systems")
    cursor.execute(
        "CREATE TEMPORARY TABLE systems (number INT PRIMARY KEY, biz BIGINT, UNIQUE KEY (biz), "
        "normal BIGINT, paused BIGINT) ENGINE=MEMORY"
    )
    cursor.execute(
        "INSERT INTO systems SELECT ROW_NUMBER() OVER (ORDER BY b.id) - 1, b.id, "
        "(SELECT id FROM biz_receive WHERE biz_id = b.id AND status = 0), "
        "(SELECT id FROM biz_receive WHERE biz_id = b.id AND status = 1) "
        "FROM biz b WHERE b.name LIKE 'system-%'"
    )


def _statements(rows: int, now: datetime, first: int, until: int) -> list[str]:
    """The statements that make messages number `first` to `until`.

    Each is made of the rows of one before it, so that a message, its delivery, its attempt and what
    is archived agree.
    """
    last = ids.first_id_at(now - timedelta(minutes=10)) >> ids.TICK_SHIFT
    hot = _HOT_DAYS * 86400 * ids.TICKS_PER_SECOND
    step = max(2, hot // rows)
    base = last - rows * step  # ticks: the first message's time
    tick = f"({base} + n.seq * {step})"
    low, high = ((base + n * step) << ids.TICK_SHIFT for n in (first, until + 1))
    part = f"m.id >= {low} AND m.id < {high} ORDER BY m.id"
    # Half of the messages are the first system's; the others' shares fall from one to the next.
    system = (
        f"IF(CRC32(n.seq) % 1000 < 500, 0, "
        f"1 + FLOOR({SYSTEMS - 1} * POW((CRC32(n.seq) % 1000 - 500) / 500, 3)))"
    )
    key = f"INSERT(INSERT({digest('n.seq')}, 9, 0, '-'), 14, 0, '-')"
    at = "TIMESTAMPADD(MICROSECOND, {} DIV 16 * 125, '2025-01-01')"
    lot = "CRC32(CONCAT('lot', m.id)) % 100"  # decides how a delivery ends
    status = (
        f"CASE WHEN {lot} < 85 THEN {_State.DELIVERED:d} WHEN {lot} < 90 THEN "
        f"{_State.EXHAUSTED:d} WHEN {lot} < 95 THEN {_State.PENDING:d} WHEN {lot} < 98 THEN "
        f"{_State.HELD:d} ELSE {_State.SKIPPED:d} END"
    )
    created = at.format(f"(m.id >> {ids.TICK_SHIFT})")

    def cold_tick(row_id: str) -> str:
        """The tick of an archived row: before all hot ones, stretched over eight weeks."""
        return f"({last - hot} - ({last} - ({row_id} >> {ids.TICK_SHIFT})) * {_STRETCHED})"

    def cold(row_id: str) -> str:
        return f"(({cold_tick(row_id)} << {ids.TICK_SHIFT}) | ({row_id} & {_LOW}))"

    def cold_at(row_id: str) -> str:
        return at.format(cold_tick(row_id))

    return [
        f"INSERT INTO idempotency (id, bucket, biz_id, `key`, payload_hash, created_at) "
        f"SELECT ({tick} << {ids.TICK_SHIFT}) | (CRC32(CONCAT(s.biz, ':', {key})) & 255), "
        f"CRC32(CONCAT(s.biz, ':', {key})) & 255, s.biz, {key}, SHA2(n.seq, 256), "
        f"{at.format(tick)} FROM {numbers(first, until)} n STRAIGHT_JOIN systems s "
        f"ON s.number = {system}",
        "INSERT INTO biz_msg (id, biz_id, event_type, channel, payload, state, created_at) "
        "SELECT m.id, m.biz_id, "
        "ELT(1 + FLOOR(POW(CRC32(m.id) % 100, 2) / 2500), 'order.paid', 'order.shipped', "
        "'order.returned', 'customer.changed'), '', CONCAT('{\"order\":\"', m.`key`, "
        '\'","amount":"1299.00","currency":"CNY"}\'), '
        f"{BizMsg.State.DISTRIBUTED:d}, m.created_at FROM idempotency m WHERE {part}",
        "INSERT INTO receive_msg (id, msg_id, biz_id, biz_receive_id, status, send_times, "
        "next_at, claimed_by, generation, http_status, error, created_at, updated_at) "
        f"SELECT m.id | (1 << {ids.NODE_SHIFT}), m.id, m.biz_id, "
        f"IF({lot} BETWEEN 95 AND 97, s.paused, s.normal), {status}, 1, "
        f"IF({lot} BETWEEN 90 AND 94, UTC_TIMESTAMP(6) + INTERVAL 2 + {lot} HOUR "
        f"+ INTERVAL m.id % 3600 SECOND, {created} + INTERVAL 30 SECOND), '', 0, "
        f"IF({lot} < 85, 200, IF({lot} < 95, 503, 0)), '', m.created_at, m.created_at "
        f"FROM biz_msg m STRAIGHT_JOIN systems s ON s.biz = m.biz_id WHERE {part}",
        "INSERT INTO attempt (id, copy_id, claim, number, at, seconds, http_status, error, "
        "detail, response_headers, response_body) SELECT id, id, "
        f"{digest('id DIV 5000000000')}, 1, created_at, 0.0123, http_status, '', '', "
        "'HTTP/1.1 200 OK\\r\\ncontent-length: 0\\r\\n', '' FROM receive_msg m "
        f"WHERE http_status > 0 AND {part}",
        "INSERT INTO biz_msg_cold (id, biz_id, event_type, channel, payload, created_at, "
        f"`key`, archived_at) SELECT {cold('m.id')}, m.biz_id, m.event_type, m.channel, "
        f"m.payload, {cold_at('m.id')}, {digest('m.id')}, m.created_at FROM biz_msg m WHERE {part}",
        "INSERT INTO receive_msg_cold (id, msg_id, biz_id, biz_receive_id, status, "
        "send_times, generation, http_status, error, created_at, updated_at) "
        f"SELECT {cold('id')}, {cold('msg_id')}, biz_id, biz_receive_id, "
        f"IF(status IN ({_State.PENDING:d}, {_State.HELD:d}), {_State.DELIVERED:d}, status), "
        f"1, 0, http_status, '', {cold_at('id')}, {cold_at('id')} FROM receive_msg m WHERE {part}",
        "INSERT INTO attempt_cold (id, copy_id, claim, number, at, seconds, http_status, "
        f"error, detail, response_headers, response_body) SELECT {cold('id')}, "
        f"{cold('copy_id')}, claim, number, {cold_at('id')}, seconds, http_status, error, "
        f"detail, response_headers, response_body FROM attempt m WHERE {part}",
    ]
