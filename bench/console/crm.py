"""The hive and what a CRM has got of it: leads, records, operations, the recovery log."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db import connection

from bench.console.spread import Spread, mostly_first
from bench.harness.mariadb import digest, numbers
from crmsync.models import (
    Crm,
    LandingPage,
    Policy,
    Record,
    RecoveryEntry,
    Run,
    Source,
    lead_triggers,
)
from msgplatform.models import Biz

DAYS = 60
APPKEY = "spring-sale"
TABLES = (
    "lead", "sync_record", "sync_operation", "sync_item", "sync_run", "recovery_log",
    "exception_log",
)  # fmt: skip
_BATCH = 100  # records of an operation
_RUN = 500  # of a run
_LOT = "CRC32(n.seq) % 1000"  # decides what becomes of a record
_NAMES = "'王小明', '李雷', '韩梅梅', '陈静', '刘洋', '赵敏', '孙悦', '周杰'"
_State, _Entry = Record.State, RecoveryEntry.State


def phone(of: int) -> str:
    """The telephone number of the lead with this number."""
    return f"139{of:08}"


def fill(cursor: Any, rows: int, systems: Sequence[Biz], now: datetime) -> None:
    """Write `rows` leads, and as many records of one policy."""
    policy = _cast(systems[0])
    spread = Spread(rows, DAYS, now)
    of_rows = f"FROM {numbers(1, rows)} n"
    # The triggers would set the time of change.
    with connection.schema_editor(atomic=False) as editor:
        lead_triggers.drop(editor)
    cursor.execute(
        "INSERT INTO `lead` (id, biz_id, appkey, uid, name, phone, extra, UpdateTime, IsDelete, "
        f"version) SELECT {spread.id()}, {mostly_first([biz.pk for biz in systems])}, "
        f"IF(CRC32(n.seq) % 3, '{APPKEY}', 'autumn'), CONCAT('u', {digest('n.seq')}), "
        f"CONCAT(ELT(1 + n.seq MOD 8, {_NAMES}), n.seq), CONCAT('139', LPAD(n.seq, 8, '0')), "
        f'CONCAT(\'{{"email":"\', {digest("n.seq + 7")}, \'@example.com","wishes":"\', '
        f"LEFT(SHA2(n.seq, 256), 40), '\"}}'), {spread.at(seconds=1)}, {_LOT} = 999, 1 {of_rows}"
    )
    with connection.schema_editor(atomic=False) as editor:
        lead_triggers.create(editor)
    state = (
        f"CASE WHEN {_LOT} < 20 THEN {_State.DEAD:d} WHEN {_LOT} < 25 THEN {_State.RETRY:d} "
        f"WHEN {_LOT} < 30 THEN {_State.WAITING:d} ELSE {_State.CONFIRMED:d} END"
    )
    operation = spread.id(f"(1 + (n.seq - 1) DIV {_BATCH} * {_BATCH})")
    cursor.execute(
        "INSERT INTO sync_record (id, policy_id, `key`, version, deleted, operation_id, "
        "sending_operation, digest, state, attempt, next_at, claimed_by, sent_version, "
        f"sent_digest, remote_id, error_class, updated_at) SELECT {spread.id()}, {policy.pk}, "
        f"{spread.id()}, 1, 0, {operation}, 0, {digest('n.seq')}, {state}, {_LOT} < 25, "
        f"IF({_LOT} BETWEEN 20 AND 29, UTC_TIMESTAMP(6) + INTERVAL 1 DAY, NULL), '', "
        f"{_LOT} >= 30, IF({_LOT} >= 30, {digest('n.seq')}, ''), IF({_LOT} >= 30, "
        f"CONCAT('crm-', n.seq), ''), IF({_LOT} < 20, 'invalid', IF({_LOT} < 25, 'retry', '')), "
        f"{spread.at(seconds=5)} {of_rows}"
    )
    cursor.execute(
        "INSERT INTO sync_item (id, operation_id, record_id, crm_id, version, attempt, outcome, "
        f"remote_id, field, message, at, milliseconds) SELECT {spread.id()}, {operation}, "
        f"{spread.id()}, {policy.crm_id}, 1, 1, IF({_LOT} < 20, 'invalid', 'ok'), "
        f"CONCAT('crm-', n.seq), '', IF({_LOT} < 20, 'no such city', ''), {spread.at(seconds=5)}, "
        f"120 {of_rows}"
    )
    _operations(cursor, rows, policy, spread)
    _logs(cursor, rows, policy, spread)


def _operations(cursor: Any, rows: int, policy: Policy, spread: Spread) -> None:
    """Operations of a hundred records each, and runs of five hundred."""
    first = f"(1 + (n.seq - 1) * {_BATCH})"
    milliseconds = f"UNIX_TIMESTAMP({spread.at(first)}) * 1000"
    run = spread.id(f"(1 + (n.seq - 1) * {_BATCH} DIV {_RUN} * {_RUN})")
    cursor.execute(
        "INSERT INTO sync_operation (id, data, start_at, end_at, result, policy_id, run_id, "
        f"records, confirmed, replaced, dead) SELECT {spread.id(first)}, '[]', {milliseconds}, "
        f"{milliseconds} + 900, 1, {policy.pk}, {run}, {_BATCH}, {_BATCH} - 2, 0, 2 "
        f"FROM {numbers(1, -(-rows // _BATCH))} n"
    )
    first = f"(1 + (n.seq - 1) * {_RUN})"
    cursor.execute(
        "INSERT INTO sync_run (id, policy_id, kind, requested_by, state, started_at, read_at, "
        f"`read`, unchanged, unread, after, problem) SELECT {spread.id(first)}, {policy.pk}, "
        f"'{Policy.Kind.CHANGES}', '', {Run.State.READ:d}, {spread.at(first)}, "
        f"{spread.at(first, 2)}, {_RUN}, 0, 0, NULL, '' FROM {numbers(1, -(-rows // _RUN))} n"
    )


def _logs(cursor: Any, rows: int, policy: Policy, spread: Spread) -> None:
    """An open entry for each dead record, a solved one for one in thirty others; a failed call for
    one in a hundred records."""
    cursor.execute(
        "INSERT INTO recovery_log (policy_id, crm_id, operation_id, record_id, `key`, version, "
        "error_class, field, reason, attempts, request, state, created_at, handled_by) "
        f"SELECT {policy.pk}, {policy.crm_id}, r.operation_id, r.id, r.`key`, 1, 'invalid', "
        "'city', 'no such city', 1, CONCAT('{\"key\":\"', r.`key`, '\",\"version\":1,"
        f'"fields":{{}}}}\'), IF(r.state = {_State.DEAD:d}, {_Entry.OPEN:d}, {_Entry.SOLVED:d}), '
        f"r.updated_at, '' FROM sync_record r WHERE r.state = {_State.DEAD:d} "
        "OR CRC32(CONCAT('solved', r.id)) % 30 = 0"
    )
    number = f"(n.seq * {100 if rows >= 100 else 1})"
    cursor.execute(
        "INSERT INTO exception_log (id, policy_id, crm_id, operation_id, kind, message, records, "
        f"at) SELECT {spread.id(number)}, {policy.pk}, {policy.crm_id}, {spread.id(number)}, "
        f"'retry', 'The CRM answered HTTP 503', 100, {spread.at(number)} "
        f"FROM {numbers(1, max(1, rows // 100))} n"
    )


def _cast(biz: Biz) -> Policy:
    """A landing page, two CRMs, and the policies by which they get the hive; the first one's."""
    LandingPage.objects.create(biz=biz, appkey=APPKEY, title="Spring sale")
    sales, service = (
        Crm.objects.create(
            name=name, adapter="sql", settings={"table": "customer"},
            credentials={"url": "sqlite:///nowhere.db"},
        )
        for name in ("sales", "service")
    )  # fmt: skip
    hive = Source.hive()
    Policy.objects.create(source=hive, crm=service, mapping="name = name")
    return Policy.objects.create(source=hive, crm=sales, mapping="name = name")
