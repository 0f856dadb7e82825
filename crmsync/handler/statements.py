"""The statements of marks: orders of one operation that a CRM has stored as a whole, and entries of
the recovery log.

Orders of which the CRM has stored every record are by far the most frequent. One statement marks
all records, and one counts them in their operation. If these are all records of the operation and
each was stored at its first try, the operation gets the time and no items are written:
`messages.timeline` makes items from the operation."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from django.db import connection

from crmsync.adapters.outcomes import Auth, Conflict, Invalid, Ok, Refused, Retry, Unknown
from crmsync.handler.answers import Answer, DeliveryResult, Fault
from crmsync.handler.verdicts import Row
from crmsync.models import Operation, Record, RecoveryEntry
from crmsync.models.crms import MAX_REMOTE_ID
from crmsync.models.operations import MAX_MESSAGE
from crmsync.monitor import failures
from crmsync.orders import MAX_ENTRIES, Order
from msgplatform.core.data import claims, engines, sql

_RECORDS, _OPERATIONS = Record._meta.db_table, Operation._meta.db_table
_CONFIRMED, _QUEUED = int(Record.State.CONFIRMED), int(Record.State.QUEUED)


class NotUniform(Exception):
    """The transaction is rolled back, and the records are marked one by one."""


def is_uniform(result: DeliveryResult, answers: Sequence[Answer]) -> bool:
    """True if all records may be marked by one statement, as far as the answers tell."""
    first = answers[0].entry.operation
    return (
        result.is_plain
        and len(answers) <= MAX_ENTRIES
        and all(
            type(answer.outcome) is Ok
            and answer.entry.operation == first
            and len(answer.outcome.remote_id or answer.remote_id) <= MAX_REMOTE_ID
            for answer in answers
        )
    )


def confirm(order: Order, answers: Sequence[Answer], now: datetime) -> int | None:
    """Mark the records of a uniform order, in the caller's transaction. Returns the time of their
    first try if the operation notes it (milliseconds since 1970), so that they need no items; else
    None. Raises NotUniform if one of them does not carry the claim any more, has a newer version or
    was adopted."""
    operation = answers[0].entry.operation
    new_ids: dict[int, str] = {}  # record → its new id in the CRM
    for answer in answers:
        remote_id = getattr(answer.outcome, "remote_id", "") or answer.remote_id
        if remote_id and remote_id != answer.entry.remote_id:
            new_ids[answer.entry.record] = remote_id
    choice = engines.of().choice("remote_id", list(new_ids)) if new_ids else ""
    values = f", remote_id = {choice}" if choice else ""
    row_ids = ",".join(str(answer.entry.record) for answer in answers)
    statement = (
        f"UPDATE {_RECORDS} {claims.by_primary_key(_RECORDS)} SET state = {_CONFIRMED}, "  # noqa: S608
        "sent_version = version, sent_digest = digest, attempt = 0, next_at = NULL, "
        "claimed_by = '', sending_operation = 0, error_class = '', "
        f"room = '{Record.ROOM}', updated_at = %s{values} "
        f"WHERE id IN ({row_ids}) AND state = {_QUEUED} AND claimed_by = %s "
        "AND operation_id = %s AND NOT is_adopted"
    )
    with connection.cursor() as cursor:
        parameters = [sql.stored(now), *new_ids.values(), order.claim, operation]
        cursor.execute(statement, parameters)
        if cursor.rowcount != len(answers):
            raise NotUniform
        return _count(cursor, operation, answers, now)


def _count(cursor: Any, operation: int, answers: Sequence[Answer], now: datetime) -> int | None:
    """Count the records in their operation. Returns the time of their first try if it notes it."""
    count, milliseconds = len(answers), int(now.timestamp() * 1000)
    is_first = all(not answer.entry.attempt for answer in answers)
    if is_first and len({answer.milliseconds for answer in answers}) == 1:
        cursor.execute(
            f"UPDATE {_OPERATIONS} SET confirmed = records, end_at = %s, result = 1, "  # noqa: S608
            "first_try_at = %s, first_try_ms = %s WHERE id = %s AND records = %s "
            "AND confirmed = 0 AND replaced = 0 AND dead = 0 AND first_try_at IS NULL",
            [milliseconds, milliseconds, answers[0].milliseconds, operation, count],
        )
        if cursor.rowcount:
            return milliseconds
    # Assign the counts last: later assignments of MySQL would use the new values.
    is_last = f"end_at IS NULL AND records <= confirmed + replaced + dead + {count}"
    cursor.execute(
        f"UPDATE {_OPERATIONS} SET "  # noqa: S608
        f"result = CASE WHEN {is_last} THEN (dead = 0) ELSE result END, "
        f"end_at = CASE WHEN {is_last} THEN %s ELSE end_at END, "
        "confirmed = confirmed + %s WHERE id = %s",
        [milliseconds, count, operation],
    )
    return None


_MAX_FIELD = 128


def field_and_reason(outcome: object) -> tuple[str, str]:
    """The field at fault and the reason, as the CRM gave them, cut to the length of the columns."""
    match outcome:
        case Invalid(field=field, message=text):
            return field[:_MAX_FIELD], text[:MAX_MESSAGE]
        case Retry(why=text):
            return "", text[:MAX_MESSAGE]
        case (
            Unknown(message=text) | Refused(message=text) | Fault(message=text) | Auth(message=text)
        ):
            return "", text[:MAX_MESSAGE]
        case Conflict(existing_id=other) if other:
            return "", f"The CRM holds this person as another record: {other}"[:MAX_MESSAGE]
        case Conflict():
            return "", "The CRM holds this person as another record, and does not say which."
    return "", ""


def open_entries(dead: Sequence[tuple[Row, Answer, str]], crm_id: int, now: datetime) -> None:
    """Open an entry of the recovery log for each of these records."""
    entries = []
    for row, answer, error in dead:
        field, reason = field_and_reason(answer.outcome)
        # The record's version: a newer one with the same values shares this request.
        entries.append(RecoveryEntry(
            policy_id=row.policy_id, operation_id=answer.entry.operation, record_id=row.id,
            key=row.key, version=row.version, error_class=error, field=field, reason=reason,
            attempts=row.attempt, request=msgspec.json.encode(answer.entry.request),
        ))  # fmt: skip
    if entries:
        failures.open_entries(crm_id, entries, now)
