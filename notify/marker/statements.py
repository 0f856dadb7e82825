"""The statements that mark copies, a set at a time.

Marks are monotonic. A success applies whatever the state. A failure, or an unsent copy, applies
only while the row still carries this claim: after a requeue or a reclaim it belongs to somebody
else. Which results apply is decided once, from rows that are locked: counters, health and the rows
themselves then say the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import DateTimeField, F, QuerySet, Value
from django.db.models.expressions import RawSQL
from django.db.models.functions import Greatest, Now

from msgplatform.core.data import claims, sql
from msgplatform.core.data.chunks import chunks
from msgplatform.core.rates import backoff
from notify.marker.failing_subscriptions import GONE
from notify.models import Attempt, ReceiveMsg
from notify.orders import Result

# A timeout or a 429 says that the consumer is overloaded: do not come back within a minute.
OVERLOAD_FLOOR_SECONDS = 60.0
# Of a subscription that cannot be read until somebody corrects it.
UNREADABLE_SECONDS = 60.0
# Until every daemon knows that the subscription was disabled; from then on its copies wait.
GONE_SECONDS = 5.0
_Status = ReceiveMsg.Status

# The waits after each failed attempt but the last; None when they are not known.
Schedule = Callable[[int], Sequence[float] | None]
# Since when every attempt of a subscription failed; None when the latest one went well.
FailingSince = Callable[[int], datetime | None]


@dataclass(slots=True)
class Copy:
    """A locked row, and what this transaction has made of it."""

    status: int
    claimed_by: str
    created_at: datetime
    generation: int = 0

    def still_carries(self, claim: str) -> bool:
        return self.status == _Status.QUEUED and self.claimed_by == claim

    def becomes(self, status: int) -> None:
        self.status, self.claimed_by = status, ""


Copies = Mapping[int, Copy]


def lock(results: Iterable[Result]) -> dict[int, Copy]:
    """Their copies by id, locked in that order until the transaction ends; unknown ids are absent.

    (SQLite locks nothing here: it has one writer at a time.)
    """
    row_ids = sorted({result.id for result in results})
    found: dict[int, Copy] = {}
    for chunk in chunks(row_ids, claims.CHUNK):
        rows = ReceiveMsg.objects.select_for_update().filter(id__in=chunk).order_by("id")
        for row in rows.values_list("id", "status", "claimed_by", "created_at", "generation"):
            found[row[0]] = Copy(*row[1:])
    return found


def delivered(results: Iterable[Result], copies: Copies) -> list[Result]:
    """Final, and final again when repeated; those that were not delivered before."""
    applied = []
    results = list(results)
    repeated = _logged_before(results, copies)
    for result in results:
        copy = copies.get(result.id)
        if copy and copy.status != _Status.DELIVERED and result.id not in repeated:
            copy.becomes(_Status.DELIVERED)
            applied.append(result)
    for (attempt, status), row_ids in _grouped(applied, lambda r: (r.attempt, r.http_status)):
        _update(
            ReceiveMsg.objects.filter(id__in=row_ids).exclude(status=_Status.DELIVERED),
            status=_Status.DELIVERED,
            send_times=Greatest(F("send_times"), Value(attempt)),
            http_status=status,
            error="",
        )
    return applied


def _logged_before(results: Iterable[Result], copies: Copies) -> set[int]:
    """Copies that were sent again since: a repeat of the old success must not swallow that."""
    odd = {
        (result.id, result.claim)
        for result in results
        if (copy := copies.get(result.id))
        and copy.status != _Status.DELIVERED
        and not copy.still_carries(result.claim)
    }
    if not odd:
        return set()
    rows = Attempt.objects.filter(copy_id__in=[copy_id for copy_id, _ in odd])
    return {copy_id for copy_id, _ in odd.intersection(rows.values_list("copy_id", "claim"))}


def failed(
    results: Iterable[Result],
    copies: Copies,
    schedule: Schedule,
    now: datetime,
    failing_since: FailingSince = lambda _: None,
) -> tuple[list[Result], list[Result]]:
    """Back to pending with the time of the next attempt; exhausted when the schedule is used up.

    Returns (those that applied, those of them that are exhausted).
    """
    applied = _carried(results, copies, _Status.PENDING)
    delays: dict[int, float | None] = {}
    for result in applied:
        waits = schedule(result.subscription)
        dead = _is_given_up(copies[result.id], waits, failing_since(result.subscription), now)
        delays[result.id] = None if dead and result.http_status != GONE else _delay(result, waits)
    for (claim, attempt, status, error, over), row_ids in _grouped(
        applied, lambda r: (r.claim, r.attempt, r.http_status, r.error, delays[r.id] is None)
    ):
        again = {"status": _Status.EXHAUSTED} if over else _again(delays, row_ids, now)
        _update(
            _still_claimed(claim, row_ids),
            send_times=attempt, http_status=status, error=error, **again,
        )  # fmt: skip
    return applied, [result for result in applied if delays[result.id] is None]


def unsent(results: Iterable[Result], copies: Copies) -> None:
    """Nobody tried: due at once, and no attempt is counted."""
    given_back = _carried(results, copies, _Status.PENDING)
    for (claim,), row_ids in _grouped(given_back, lambda r: (r.claim,)):
        _update(_still_claimed(claim, row_ids), status=_Status.PENDING, next_at=Now())


def _carried(results: Iterable[Result], copies: Copies, status: int) -> list[Result]:
    applied = []
    for result in results:
        copy = copies.get(result.id)
        if copy and copy.still_carries(result.claim):
            copy.becomes(status)
            applied.append(result)
    return applied


def _is_given_up(
    copy: Copy, waits: Sequence[float] | None, failing_since: datetime | None, now: datetime
) -> bool:
    """The whole schedule is over for a copy that a breaker kept from most of its attempts: it, and
    its subscription's failing, are older than all its waits together (see `expiry.py`)."""
    if waits is None or failing_since is None or copy.generation:
        return False
    return max(copy.created_at, failing_since) + timedelta(seconds=sum(waits)) < now


def _delay(result: Result, schedule: Sequence[float] | None) -> float | None:
    """Seconds until the next attempt; None when the schedule is used up."""
    if result.http_status == GONE:
        # Not this copy is to blame: it waits, with all the others, for whoever resumes.
        # When successes beside it keep the subscription enabled, ever more seldom.
        return min(3600.0, GONE_SECONDS * 2.0 ** min(result.attempt - 1, 10))
    if schedule is None:
        return UNREADABLE_SECONDS
    if result.attempt > len(schedule):
        return None
    delay = backoff.delay(result.attempt, schedule)
    if result.http_status == 429 or result.error == "timeout":
        delay = max(delay, min(OVERLOAD_FLOOR_SECONDS, max(schedule)))
    return max(delay, result.retry_after, 0.001)


def _again(
    delays: Mapping[int, float | None], row_ids: Sequence[int], now: datetime
) -> dict[str, Any]:
    """Each row with its own time: jitter keeps a herd from coming back together."""
    # Written out: five hundred expression objects cost more than everything else together.
    parameters: list[Any] = []
    for row_id in row_ids:
        due = now + timedelta(seconds=delays[row_id] or 0)
        parameters += (row_id, sql.stored(due))
    cases = "CASE id" + " WHEN %s THEN %s" * len(row_ids) + " END"
    due_at = RawSQL(cases, parameters, DateTimeField())  # noqa: S611 - parameters only
    return {"status": _Status.PENDING, "next_at": due_at}


def _still_claimed(claim: str, row_ids: Sequence[int]) -> QuerySet[ReceiveMsg]:
    return ReceiveMsg.objects.filter(id__in=row_ids, claimed_by=claim, status=_Status.QUEUED)


def _update(rows: QuerySet[ReceiveMsg], **values: Any) -> int:
    return claims.update_by_key(rows, {**values, "claimed_by": "", "updated_at": Now()})


def _grouped(
    results: Iterable[Result], key: Callable[[Result], tuple[Any, ...]]
) -> Iterable[tuple[tuple[Any, ...], Sequence[int]]]:
    """(key, ids) with at most CHUNK ids each."""
    groups: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for result in results:
        groups[key(result)].append(result.id)
    for found, row_ids in groups.items():
        for chunk in chunks(row_ids, claims.CHUNK):
            yield found, chunk
