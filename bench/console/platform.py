"""What the platform keeps beside the messages: the audit log, alerts, bulk jobs, failures,
and the counters of the statistics."""

from datetime import datetime, timedelta
from typing import Any

from bench.console.spread import Spread
from bench.harness.mariadb import numbers
from msgplatform.jobs.models import BulkJob
from msgplatform.models import AuditLog, DayCounter, MinuteCounter
from msgplatform.monitor import counters, runbooks
from notify.models import ReceiveMsg

DAYS = 60
_COUNTED_DAYS = 14  # for as long as minutes are kept
_YEAR = 365
_AUDIT = AuditLog._meta.db_table
_MINUTES, _DAYS = MinuteCounter._meta.db_table, DayCounter._meta.db_table
TABLES = (_AUDIT, "msgplatform_alert", "msgplatform_givenup", _MINUTES, _DAYS)
_Status = ReceiveMsg.Status
# To the minute.
_MINUTE = "DATE_FORMAT({}, '%Y-%m-%d %H:%i:00')"


def fill(cursor: Any, rows: int, now: datetime) -> None:
    """Write an audit entry for ten messages, an alert for two hundred, and count what the flows'
    tables hold. These must be filled."""
    _logs(cursor, rows, now)
    _failures(cursor)
    _minutes(cursor, now)
    counters.roll_up()
    while counters.roll_up_hours():
        pass
    _earlier_days(cursor)


def _logs(cursor: Any, rows: int, now: datetime) -> None:
    entries, alerts, jobs = max(100, rows // 10), max(50, rows // 200), 200
    spread = Spread(entries, DAYS, now)
    cursor.execute(
        f"INSERT INTO {_AUDIT} (at, actor, action, target, detail) SELECT {spread.at()}, "
        "ELT(1 + n.seq MOD 4, 'ann', 'bob', 'carol', 'dave'), ELT(1 + CRC32(n.seq) % 5, "
        "'subscription_changed', 'system_changed', 'message_resent', 'alert_acknowledged', "
        "'personal_data_shown'), CONCAT('system-', n.seq MOD 50), "
        '\'{"changes":{"title":["Shop","Market"]}}\' '
        f"FROM {numbers(1, entries)} n"
    )
    kinds = sorted(runbooks.by_kind())
    kind = f"ELT(1 + n.seq MOD {len(kinds)}, {', '.join(repr(each) for each in kinds)})"
    spread = Spread(alerts, DAYS, now)
    cursor.execute(
        "INSERT INTO msgplatform_alert (kind, subject, text, said, open_key, `key`, count, "
        f"first_at, last_at, resolved_at, acknowledged_by, note) SELECT {kind}, "
        f"'Something is wrong', 'Look at it.', '{{}}', NULL, CONCAT({kind}, ':', n.seq MOD 100), "
        f"1, {spread.at()}, {spread.at(seconds=60)}, {spread.at(seconds=90)}, '', '' "
        f"FROM {numbers(1, alerts)} n"
    )
    # The last three are open.
    cursor.execute(
        "UPDATE msgplatform_alert SET resolved_at = NULL, open_key = CONCAT('open:', id) "
        "ORDER BY id DESC LIMIT 3"
    )
    BulkJob.objects.bulk_create(
        BulkJob(
            flow="notify", filter={"status": "exhausted"}, state=BulkJob.State.DONE, total=1000,
            done=1000, created_by="ann", finished_at=now,
        )
        for _ in range(jobs)
    )  # fmt: skip


def _failures(cursor: Any) -> None:
    """As daemons count it, of what the tables hold now."""
    columns = "flow, subject, answer, count, lost, since, last_at, sample, said, counted_since"
    for flow, subject, answer, at, rows in (
        ("notify", "biz_receive_id", "CONCAT('HTTP ', http_status)", "updated_at",
         f"receive_msg WHERE status = {_Status.EXHAUSTED:d}"),
        ("sms", "gateway_id", "CONCAT('result ', error_code)", "archived_at",
         "sgip_mt WHERE final = 'failed'"),
        ("sms", "gateway_id", "final", "archived_at", "sgip_mt WHERE final = 'expired'"),
        ("crmsync", "crm_id", "error_class", "created_at", "recovery_log WHERE state = 0"),
        ("feed", "0", "SUBSTRING_INDEX(reason, ':', 1)", "create_date",
         "eventqueue WHERE status = 3"),
    ):  # fmt: skip
        key = "qid" if flow == "feed" else "record_id" if flow == "crmsync" else "id"
        cursor.execute(
            f"INSERT INTO msgplatform_givenup ({columns}) SELECT '{flow}', {subject} AS place, "
            f"{answer} AS why, COUNT(*), COUNT(*), MIN({at}), MAX({at}), MAX({key}), "
            f"'no such customer', MIN({at}) FROM {rows} GROUP BY place, why"
        )


def _minutes(cursor: Any, now: datetime) -> None:
    """The counters that the flows write, by minute."""
    since = f"'{now - timedelta(days=_COUNTED_DAYS):%Y-%m-%d %H:%M}'"
    # A delivery counts under several names; so does a failed one.
    arrived = (
        "CASE k.seq WHEN 0 THEN 'delivered' WHEN 1 THEN ELT(1 + m.id DIV 32768 MOD 3, "
        "'latency_le_100ms', 'latency_le_250ms', 'latency_le_500ms') ELSE 'duration_le_25ms' END"
    )
    failed = "ELT(1 + k.seq, 'failed', 'answer 503', 'exhausted')"
    twice = f"{numbers(0, 1)} k"
    good = f"m.status = {_Status.DELIVERED:d}"
    for flow, at, biz, subject, name, rows in (
        ("notify", "m.created_at", "m.biz_id", "0", "'accepted'", "biz_msg m WHERE 1"),
        ("notify", "m.created_at", "m.biz_id", "m.biz_receive_id", f"IF({good}, {arrived}, "
         f"{failed})", f"receive_msg m STRAIGHT_JOIN {numbers(0, 2)} k "
         f"WHERE ({good} OR m.status = {_Status.EXHAUSTED:d})"),
        ("sms", "m.archived_at", "m.biz_id", "m.account_id", "IF(k.seq, 'segments', m.final)",
         f"sgip_mt m STRAIGHT_JOIN {twice} WHERE 1"),
        ("sms", "m.archived_at", "m.biz_id", "-m.gateway_id", "IF(k.seq, 'segments', m.final)",
         f"sgip_mt m STRAIGHT_JOIN {twice} WHERE 1"),
        ("crmsync", "m.updated_at", "0", "m.policy_id",
         "ELT(1 + k.seq, 'read', IF(m.state = 4, 'dead', 'confirmed'))",
         f"sync_record m STRAIGHT_JOIN {twice} WHERE 1"),
        ("feed", "m.create_date", "m.biz_id", "0", "IF(k.seq, 'entries_friend', "
         "'handled_friend')", f"feed m STRAIGHT_JOIN {twice} WHERE 1"),
    ):  # fmt: skip
        cursor.execute(
            f"INSERT INTO {_MINUTES} (minute, flow, biz_id, subject, name, value) "
            f"SELECT {_MINUTE.format(at)} AS at, '{flow}', {biz} AS biz, {subject} AS about, "
            f"{name} AS what, COUNT(*) FROM {rows} AND {at} >= {since} "
            "GROUP BY at, biz, about, what ORDER BY at"
        )
    # The hot tables of Notify hold a week.
    cursor.execute(
        f"INSERT INTO {_MINUTES} (minute, flow, biz_id, subject, name, value) SELECT "
        f"minute - INTERVAL 8 DAY, flow, biz_id, subject, name, value FROM {_MINUTES} "
        f"WHERE flow = 'notify' AND minute - INTERVAL 8 DAY >= {since}"
    )


def _earlier_days(cursor: Any) -> None:
    """A year of days, each like one that was counted."""
    cursor.execute(
        f"INSERT INTO {_DAYS} (day, flow, biz_id, subject, name, value) SELECT "
        f"d.day - INTERVAL n.seq DAY, d.flow, d.biz_id, d.subject, d.name, d.value "
        f"FROM {_DAYS} d STRAIGHT_JOIN {numbers(_COUNTED_DAYS, _YEAR)} n "
        f"WHERE d.day = (SELECT MAX(day) FROM {_DAYS}) - INTERVAL 1 DAY"
    )
