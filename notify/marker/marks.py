"""The transaction that marks deliveries: their rows, the log of attempts, the health of their
subscriptions, failures and counters. The marker applies batches of results, the API applies the
result that a listener sends.

Marks are monotonic. A success applies whatever the state. A failure, or an unsent delivery, applies
only while the row still carries this claim: after a resend or a reclaim the delivery belongs to
another sender. The results that apply are chosen once, from locked rows, so that counters, health
and rows agree.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from django.db import transaction
from django.db.models import DateTimeField, F, QuerySet, Value
from django.db.models.expressions import RawSQL
from django.db.models.functions import Greatest, Now

from msgplatform.core.data import chunks, claims, ids, sql
from msgplatform.core.errors import LeaseLost
from msgplatform.core.failpoints import failpoint
from msgplatform.core.rates import backoff
from notify.directory import Subscription
from notify.marker import failing_subscriptions
from notify.marker.failing_subscriptions import GONE, Row
from notify.models import Attempt, ReceiveMsg
from notify.monitor import counters, failures
from notify.orders import Outcome, Result

# After a timeout or a 429 the consumer is overloaded: the next attempt waits at least a minute.
OVERLOAD_FLOOR_SECONDS = 60.0
# The delay for a subscription or a payload that cannot be read until a person corrects it.
UNREADABLE_SECONDS = 60.0
# The delay until every daemon knows that the subscription was disabled. Then its deliveries wait.
GONE_SECONDS = 5.0
_MAX_GONE_SECONDS = 3600.0
_ATTEMPT = (
    "id", "copy_id", "claim", "number", "at", "seconds", "http_status", "error", "detail",
    "response_headers", "response_body",
)  # fmt: skip
_Status = ReceiveMsg.Status


class Delivery(msgspec.Struct):
    """A locked row, with the changes of this transaction."""

    status: int
    claimed_by: str
    created_at: datetime

    def has_claim(self, claim: str) -> bool:
        return self.status == _Status.QUEUED and self.claimed_by == claim

    def becomes(self, status: int) -> None:
        self.status, self.claimed_by = status, ""


Deliveries = Mapping[int, Delivery]


def apply(
    results: Sequence[Result],
    attempts: Sequence[Result],
    block: ids.Block | None,
    subscriptions: Mapping[int, Subscription],
    event_types: counters.CatalogueSubjects,
    is_fenced: bool = False,
) -> counters.Tally:
    """Mark the deliveries of the results and log the attempts, in one transaction; returns the
    counts. `block` has an id for each attempt.

    With `is_fenced` raises LeaseLost, and changes nothing, unless each delivery still carries the
    claim of its result. Without `is_fenced` a success counts whatever the claim.
    """
    by_outcome: dict[Outcome, list[Result]] = {"delivered": [], "failed": [], "unsent": []}
    for result in results:
        by_outcome[result.outcome].append(result)
    with transaction.atomic(durable=True):
        now = sql.now()
        # The order of locks in all programs: deliveries, then subscriptions, then counters.
        deliveries = lock(results)
        if is_fenced and not all(
            result.id in deliveries and deliveries[result.id].has_claim(result.claim)
            for result in results
        ):
            raise LeaseLost
        # Deliveries that moved to the archive have their log there. After the end of its claim an
        # attempt is logged without its answer: an erasure may have replaced the other answers.
        attempts_to_log = [
            result if deliveries[result.id].has_claim(result.claim) else result.without_answer()
            for result in attempts
            if result.id in deliveries
        ]
        rows = failing_subscriptions.read(result.subscription for result in results)
        successes = mark_delivered(by_outcome["delivered"], deliveries)
        failed_results, exhausted_results = mark_failed(
            by_outcome["failed"], deliveries, subscriptions, rows, now
        )
        mark_unsent(by_outcome["unsent"], deliveries, now)
        if block:
            row_ids = block.ids([ids.bucket_of(result.id) for result in attempts_to_log])
            rows_of_log = [
                (
                    row_id, r.id, r.claim, r.attempt, datetime.fromtimestamp(r.at, UTC), r.seconds,
                    r.http_status, r.error[:32], r.detail[:300], r.response_headers,
                    r.response_body,
                )
                for row_id, r in zip(row_ids, attempts_to_log, strict=True)
            ]  # fmt: skip
            # Existing rows, from a repeated batch, do not change.
            sql.insert_or_keep(Attempt._meta.db_table, _ATTEMPT, rows_of_log)
        # An engineer's own machine fails often, so its failures disable nothing and alert nobody.
        of_health = [
            result
            for result in failed_results
            if not is_listened(subscriptions.get(result.subscription))
        ]
        failing_subscriptions.update([*successes, *of_health], rows, now)
        systems = {pk: row.biz_id for pk, row in rows.items()}
        tally = counters.Tally(systems, event_types)
        for result in successes:
            tally.count_delivered(result, deliveries[result.id].created_at)
        tally.count_failed(failed_results, exhausted_results)
        failures.count_exhausted(exhausted_results, now)
        counters.add(tally.counts, now)
        failpoint("marker_before_commit")
    return tally


def is_listened(subscription: Subscription | None) -> bool:
    """True if a listener fetches the subscription's deliveries."""
    return subscription is not None and subscription.is_listened


def lock(results: Iterable[Result]) -> dict[int, Delivery]:
    """Lock the deliveries of the results, in the order of their ids, until the transaction ends;
    returns the existing deliveries by id.

    (SQLite locks nothing here, because it has one writer at a time.)
    """
    row_ids = sorted({result.id for result in results})
    deliveries: dict[int, Delivery] = {}
    for chunk in chunks(row_ids, claims.CHUNK):
        rows = ReceiveMsg.objects.select_for_update().filter(id__in=chunk).order_by("id")
        for row in rows.values_list("id", "status", "claimed_by", "created_at"):
            deliveries[row[0]] = Delivery(*row[1:])
    return deliveries


def mark_delivered(results: Sequence[Result], deliveries: Deliveries) -> list[Result]:
    """Set these deliveries to delivered; returns the results whose delivery has changed."""
    # An odd success has another claim than the row. If its attempt is in the log, the delivery was
    # resent after that success, and a duplicate of the success must not end the resend.
    odd = {
        (result.id, result.claim)
        for result in results
        if (delivery := deliveries.get(result.id))
        and delivery.status != _Status.DELIVERED
        and not delivery.has_claim(result.claim)
    }
    duplicates: set[tuple[int, str]] = set()
    if odd:
        rows = Attempt.objects.filter(copy_id__in=[pk for pk, _ in odd])
        duplicates = odd.intersection(rows.values_list("copy_id", "claim"))
    effective: list[Result] = []
    late_ids: list[int] = []  # of failures that arrived after all
    for result in results:
        delivery = deliveries.get(result.id)
        is_duplicate = (result.id, result.claim) in duplicates
        if delivery and delivery.status != _Status.DELIVERED and not is_duplicate:
            if delivery.status in ReceiveMsg.FAILED:
                late_ids.append(result.id)
            delivery.becomes(_Status.DELIVERED)
            effective.append(result)
    for chunk in chunks(late_ids, claims.CHUNK):
        rows_of_chunk = ReceiveMsg.objects.filter(id__in=chunk)
        failures.take_back(rows_of_chunk.values_list(*failures.COLUMNS))
    for (attempt, status), row_ids in _grouped(effective, lambda r: (r.attempt, r.http_status)):
        _update(
            ReceiveMsg.objects.filter(id__in=row_ids).exclude(status=_Status.DELIVERED),
            status=_Status.DELIVERED,
            send_times=Greatest(F("send_times"), Value(attempt)),
            http_status=status,
            error="",
        )
    return effective


def mark_failed(
    results: Iterable[Result],
    deliveries: Deliveries,
    subscriptions: Mapping[int, Subscription],
    rows: Mapping[int, Row],
    now: datetime,
) -> tuple[list[Result], list[Result]]:
    """Set these deliveries to pending with the time of the next attempt, or to exhausted when the
    schedule is used up.

    `rows` are the stored subscriptions. Returns the results that applied, and the results among
    these that exhausted their delivery.
    """
    effective = _still_claimed_results(results, deliveries)
    delays = {
        result.id: _delay(
            result, subscriptions.get(result.subscription), rows.get(result.subscription)
        )
        for result in effective
    }
    for (claim, attempt, status, error, is_over), row_ids in _grouped(
        effective,
        lambda r: (r.claim, r.attempt, r.http_status, r.error, delays[r.id] is None),
    ):
        values: dict[str, Any] = {"status": _Status.EXHAUSTED}
        if not is_over:  # each row has its own time, because of jitter
            due = {row_id: now + timedelta(seconds=delays[row_id] or 0) for row_id in row_ids}
            values = {"status": _Status.PENDING, "next_at": _at(due, row_ids)}
        _update(
            _still_claimed(claim, row_ids),
            send_times=attempt, http_status=status, error=error, **values,
        )  # fmt: skip
    return effective, [result for result in effective if delays[result.id] is None]


def mark_unsent(results: Iterable[Result], deliveries: Deliveries, now: datetime) -> None:
    """Make deliveries pending that were not sent, with their old due time and without counting an
    attempt. A delivery with an unreadable payload waits for a minute."""
    given_back = _still_claimed_results(results, deliveries)
    retry_at = now + timedelta(seconds=UNREADABLE_SECONDS)
    due = {r.id: min(now, datetime.fromtimestamp(r.at, UTC)) if r.at else now for r in given_back}
    due |= {r.id: retry_at for r in given_back if r.error}
    for (claim, error), row_ids in _grouped(given_back, lambda r: (r.claim, r.error)):
        values = {"error": error} if error else {}
        next_at = _at(due, row_ids)
        _update(_still_claimed(claim, row_ids), status=_Status.PENDING, next_at=next_at, **values)


def _still_claimed_results(results: Iterable[Result], deliveries: Deliveries) -> list[Result]:
    """The results whose claim the delivery still carries. Sets these deliveries to pending."""
    effective = []
    for result in results:
        delivery = deliveries.get(result.id)
        if delivery and delivery.has_claim(result.claim):
            delivery.becomes(_Status.PENDING)
            effective.append(result)
    return effective


def _delay(result: Result, subscription: Subscription | None, row: Row | None) -> float | None:
    """Seconds until the next attempt; None: no further attempt."""
    if result.http_status == GONE and not is_listened(subscription):
        # A 410 disables the subscription, and the delivery waits until a person resumes it. While
        # successes keep the subscription enabled, the delays grow.
        return min(_MAX_GONE_SECONDS, GONE_SECONDS * 2.0 ** min(result.attempt - 1, 10))
    if subscription is None and row:
        return UNREADABLE_SECONDS
    waits = subscription.schedule if subscription else ()  # deleted: no further attempt
    # The number of attempts ends a delivery, not time. Behind an open breaker the maker ends
    # deliveries by time (`expiry.py`), because it knows that the breaker is open.
    if result.attempt > len(waits):
        return None
    delay = backoff.delay(result.attempt, waits)
    if result.http_status == 429 or result.error == "timeout":
        delay = max(delay, min(OVERLOAD_FLOOR_SECONDS, max(waits)))
    return max(delay, result.retry_after, 0.001)


def _at(times: Mapping[int, datetime], row_ids: Sequence[int]) -> RawSQL:
    # Raw SQL, because five hundred expression objects cost more than the rest of the batch.
    parameters: list[Any] = []
    for row_id in row_ids:
        parameters += (row_id, sql.stored(times[row_id]))
    cases = "CASE id" + " WHEN %s THEN %s" * len(row_ids) + " END"
    return RawSQL(cases, parameters, DateTimeField())  # noqa: S611 - parameters only


def _still_claimed(claim: str, row_ids: Sequence[int]) -> QuerySet[ReceiveMsg]:
    return ReceiveMsg.objects.filter(id__in=row_ids, claimed_by=claim, status=_Status.QUEUED)


def _update(rows: QuerySet[ReceiveMsg], **values: Any) -> int:
    return claims.update_by_key(rows, {**values, "claimed_by": "", "updated_at": Now()})


def _grouped(
    results: Iterable[Result], key: Callable[[Result], tuple[Any, ...]]
) -> Iterable[tuple[tuple[Any, ...], Sequence[int]]]:
    """Yield (key, ids) with at most CHUNK ids, so that one statement changes all rows with the same
    values."""
    groups: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for result in results:
        groups[key(result)].append(result.id)
    for values, row_ids in groups.items():
        for chunk in chunks(row_ids, claims.CHUNK):
            yield values, chunk
