"""The statements that mark copies, a set at a time.

Marks are monotonic. A success applies whatever the state. A failure, or an unsent copy, applies
only while the row still carries this claim: after a requeue or a reclaim it belongs to somebody
else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from django.db.models import Case, DateTimeField, F, QuerySet, Value, When
from django.db.models.functions import Greatest, Now

from msgplatform.core import backoff, claims, sql
from notify.counters import Counts
from notify.models import ReceiveMsg
from notify.orders import Result

# A timeout or a 429 says that the consumer is overloaded: do not come back within a minute.
OVERLOAD_FLOOR_SECONDS = 60.0
_Status = ReceiveMsg.Status


def delivered(results: Iterable[Result], counts: Counts) -> None:
    """Final, and final again when repeated: only the first time counts."""
    grouped = _grouped(results, lambda r: (r.subscription, r.attempt, r.http_status))
    for (subscription, attempt, status), row_ids in grouped:
        counts[subscription, "delivered"] += _update(
            ReceiveMsg.objects.filter(id__in=row_ids).exclude(status=_Status.DELIVERED),
            status=_Status.DELIVERED,
            send_times=Greatest(F("send_times"), Value(attempt)),
            http_status=status,
            error="",
        )


def failed(
    results: Iterable[Result], schedule: Callable[[int], Sequence[float]], counts: Counts
) -> None:
    """Back to pending with the time of the next attempt; exhausted when the schedule is used up."""
    delays = {result.id: _delay(result, schedule(result.subscription)) for result in results}
    grouped = _grouped(
        results,
        lambda r: (r.claim, r.subscription, r.attempt, r.http_status, r.error, not delays[r.id]),
    )
    for (claim, subscription, attempt, status, error, over), row_ids in grouped:
        changed = _update(
            _still_claimed(claim, row_ids),
            send_times=attempt,
            http_status=status,
            error=error,
            **({"status": _Status.EXHAUSTED} if over else _again(delays, row_ids)),
        )
        counts[subscription, "failed"] += changed
        counts[subscription, "exhausted"] += changed if over else 0


def unsent(results: Iterable[Result]) -> None:
    """Nobody tried: due at once, and no attempt is counted."""
    for (claim,), row_ids in _grouped(results, lambda r: (r.claim,)):
        _update(_still_claimed(claim, row_ids), status=_Status.PENDING, next_at=Now())


def _delay(result: Result, schedule: Sequence[float]) -> float | None:
    """Seconds until the next attempt; None when the schedule is used up."""
    if result.attempt > len(schedule):
        return None
    delay = backoff.delay(result.attempt, schedule)
    if result.http_status == 429 or result.error == "timeout":
        delay = max(delay, min(OVERLOAD_FLOOR_SECONDS, max(schedule)))
    return max(delay, result.retry_after, 0.001)


def _again(delays: Mapping[int, float | None], row_ids: Sequence[int]) -> dict[str, Any]:
    """Each row with its own time: jitter keeps a herd from coming back together."""
    now = sql.now()
    whens = [
        When(id=row_id, then=Value(now + timedelta(seconds=delays[row_id] or 0)))
        for row_id in row_ids
    ]
    due = Case(*whens, default=Now(), output_field=DateTimeField())
    return {"status": _Status.PENDING, "next_at": due}


def _still_claimed(claim: str, row_ids: Sequence[int]) -> QuerySet[ReceiveMsg]:
    return ReceiveMsg.objects.filter(id__in=row_ids, claimed_by=claim, status=_Status.QUEUED)


def _update(rows: QuerySet[ReceiveMsg], **values: Any) -> int:
    return claims.update_by_key(rows, {**values, "claimed_by": "", "updated_at": Now()})


def _grouped(
    results: Iterable[Result], key: Callable[[Result], tuple[Any, ...]]
) -> Iterable[tuple[tuple[Any, ...], list[int]]]:
    groups: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for result in results:
        groups[key(result)].append(result.id)
    return groups.items()
