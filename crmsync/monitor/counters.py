"""Counters of each policy, per minute in the database (`MinuteCounter`; subject is the policy); and
the spans of traced leads.

`read`, `unchanged` and `released` (removals that the guard let go) are counted by the poller;
`confirmed`, `dead` and `failed:<outcome>` by the handler, in the transaction that marks. `calls`
and `call_ms` give the speed of a CRM's answers.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

from django.db.models import Sum

from crmsync.models import Policy
from crmsync.models.sources import HIVE
from msgplatform.core.tracing import spans
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


def record_spans(
    step: str, began_at: int, policy: int, crm: str, keys: Sequence[str],
    errors: Mapping[str, str] | None = None,
) -> None:  # fmt: skip
    """Record a step for a batch of records, by their keys at the CRM; `errors` by key. Only traced
    leads have spans: a row of another source came by no request. `began_at` is 0 while traces are
    off; then nothing is recorded."""
    if not began_at:
        return
    rows = Policy.objects.filter(pk=policy, source__name=HIVE)
    prefix = rows.values_list("key_prefix", flat=True).first()
    if prefix is None:
        return
    leads = {key: int(lead) for key in keys if (lead := key.removeprefix(prefix)).isdigit()}
    contexts = spans.read_contexts(leads.values())
    steps = [
        spans.Step(contexts[lead], {"message_id": key, "crm": crm}, (errors or {}).get(key, ""))
        for key, lead in leads.items()
        if lead in contexts
    ]
    kind: spans.Kind = "client" if step == "send" else "internal"
    spans.record_steps(f"lead {step}", began_at, steps, len(keys), kind)
