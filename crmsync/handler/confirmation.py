"""Orders of one operation of which the CRM has stored every record: by far the most frequent ones.

One statement marks all records, and one counts them in their operation. If these are all records of
the operation and each was stored at its first try, the operation gets the time and no items are
written: `messages.tries` makes items from the operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db import connection

from crmsync.adapters.outcomes import Ok
from crmsync.handler.answers import Answer, DeliveryResult
from crmsync.models import Operation, Record
from crmsync.models.crms import MAX_REMOTE_ID
from crmsync.orders import Order
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
        and len(answers) <= claims.CHUNK
        and all(
            type(each.outcome) is Ok
            and each.entry.operation == first
            and len(each.outcome.remote_id or each.remote_id) <= MAX_REMOTE_ID
            for each in answers
        )
    )


def confirm(order: Order, answers: Sequence[Answer], now: datetime) -> int | None:
    """Mark the records of a uniform order, in the caller's transaction. Returns the time of their
    first try if the operation notes it (milliseconds since 1970), so that they need no items; else
    None. Raises NotUniform if one of them does not carry the claim any more, has a newer version or
    was adopted."""
    operation = answers[0].entry.operation
    values, parameters = _remote_ids(answers)
    row_ids = ",".join(str(answer.entry.record) for answer in answers)
    statement = (
        f"UPDATE {_RECORDS} {claims.by_primary_key(_RECORDS)} SET state = {_CONFIRMED}, "  # noqa: S608
        "sent_version = version, sent_digest = digest, attempt = 0, next_at = NULL, "
        f"claimed_by = '', sending_operation = 0, error_class = '', updated_at = %s{values} "
        f"WHERE id IN ({row_ids}) AND state = {_QUEUED} AND claimed_by = %s "
        "AND operation_id = %s AND NOT is_adopted"
    )
    with connection.cursor() as cursor:
        cursor.execute(statement, [sql.stored(now), *parameters, order.claim, operation])
        if cursor.rowcount != len(answers):
            raise NotUniform
        return _count(cursor, operation, answers, now)


def _remote_ids(answers: Sequence[Answer]) -> tuple[str, list[Any]]:
    """The part of the UPDATE that sets new ids in the CRM, with its parameters."""
    new_ids: dict[int, str] = {}
    for answer in answers:
        remote_id = getattr(answer.outcome, "remote_id", "") or answer.remote_id
        if remote_id and remote_id != answer.entry.remote_id:
            new_ids[answer.entry.record] = remote_id
    if not new_ids:
        return "", []
    value = engines.of().choice("remote_id", list(new_ids))
    return f", remote_id = {value}", list(new_ids.values())


def _count(cursor: Any, operation: int, answers: Sequence[Answer], now: datetime) -> int | None:
    """Count the records in their operation. Returns the time of their first try if it notes it."""
    count, milliseconds = len(answers), int(now.timestamp() * 1000)
    is_first = all(not each.entry.attempt for each in answers)
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


def has_first_try(operation_id: int, at: int) -> bool:
    """True if the operation notes that its records were stored at their first try at this time."""
    return Operation.objects.filter(pk=operation_id, first_try_at=at).exists()
