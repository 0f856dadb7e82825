"""Counters of each policy, per minute in the database (`MinuteCounter`; subject is the policy).

`read`, `unchanged` and `released` (removals that the guard let go) are counted by the poller;
`confirmed`, `dead` and `failed:<outcome>` by the handler, in the transaction that marks. `calls`
and `call_ms` give the speed of a CRM's answers.
"""

from collections import Counter
from datetime import datetime

from django.db.models import Sum

from msgplatform.models import MinuteCounter

FLOW = "crmsync"
READ, UNCHANGED, CONFIRMED, DEAD = "read", "unchanged", "confirmed", "dead"
RELEASED = "released"
CALLS, CALL_MS = "calls", "call_ms"

Counts = Counter[tuple[int, str]]  # (policy, name) → how many


def failed(outcome: str) -> str:
    """The name of the counter of attempts with this outcome, such as `failed:throttled`."""
    return f"failed:{outcome}"


def add(counts: Counts, now: datetime) -> None:
    """Add to the minute of `now`, in the caller's transaction."""
    by_key = {(0, policy, name): value for (policy, name), value in counts.items()}
    MinuteCounter.add(FLOW, by_key, now)


def since(moment: datetime) -> Counts:
    """The sums of all counters since then."""
    rows = MinuteCounter.objects.filter(minute__gte=moment, flow=FLOW)
    counts: Counts = Counter()
    sums = rows.values_list("subject", "name").annotate(Sum("value")).order_by()
    counts.update({(policy, name): value for policy, name, value in sums})
    return counts
