"""The transaction that marks deliveries: their rows, the log of attempts, the health of their
subscriptions, failures and counters. The marker applies batches of results, the API applies the
result that a listener sends."""

from collections.abc import Sequence

from django.db import transaction

from msgplatform.core.data import ids, sql
from msgplatform.core.errors import LeaseLost
from msgplatform.core.failpoints import failpoint
from notify.marker import failing_subscriptions, statements
from notify.marker.statements import SubscriptionsById
from notify.monitor import counters, failures
from notify.monitor.counters import CatalogueSubjects
from notify.orders import Outcome, Result


def apply(
    results: Sequence[Result],
    attempts: Sequence[Result],
    block: ids.Block | None,
    subscriptions: SubscriptionsById,
    event_types: CatalogueSubjects,
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
        deliveries = statements.lock(results)
        if is_fenced and not all(
            result.id in deliveries and deliveries[result.id].has_claim(result.claim)
            for result in results
        ):
            raise LeaseLost
        rows = failing_subscriptions.read(result.subscription for result in results)
        successes = statements.mark_delivered(by_outcome["delivered"], deliveries)
        failed_results, exhausted_results = statements.mark_failed(
            by_outcome["failed"], deliveries, subscriptions, rows, now
        )
        statements.mark_unsent(by_outcome["unsent"], deliveries, now)
        if block:
            # Deliveries that moved to the archive meanwhile are left out: their log moved too.
            attempts_to_log = [result for result in attempts if result.id in deliveries]
            statements.log_attempts(attempts_to_log, block)
        # An engineer's own machine fails often, so its failures disable nothing and alert nobody.
        of_health = [
            result
            for result in failed_results
            if not statements.is_listened(subscriptions.get(result.subscription))
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
