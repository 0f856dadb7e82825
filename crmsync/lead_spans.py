"""The spans of leads that are traced, for the programs that carry them to CRMs.

Only leads have traces: a row of another source came by no request.
"""

from collections.abc import Iterable, Mapping

from crmsync.models import Policy
from crmsync.models.sources import HIVE
from msgplatform.core.tracing import spans
from msgplatform.core.tracing.context import Context, is_on


def contexts(policy: int, keys: Iterable[str]) -> dict[str, Context]:
    """Key (as the CRM knows it) → context, for the leads that are traced. Empty for another source,
    or while traces are off."""
    if not is_on():
        return {}
    rows = Policy.objects.filter(pk=policy, source__name=HIVE)
    prefix = rows.values_list("key_prefix", flat=True).first()
    if prefix is None:
        return {}
    ids = {key: key.removeprefix(prefix) for key in keys}
    by_id = spans.read_contexts(int(lead) for lead in ids.values() if lead.isdigit())
    return {key: by_id[int(lead)] for key, lead in ids.items()
            if lead.isdigit() and int(lead) in by_id}  # fmt: skip


def record(
    step: str, began_at: int, leads: Mapping[str, Context], size: int,
    errors: Mapping[str, str] | None = None, crm: str = "",
) -> None:  # fmt: skip
    """Record a step for a batch of `size` records. `leads` are the traced leads in the batch,
    `errors` are by key."""
    steps = [
        spans.Step(context, {"message_id": key, "crm": crm}, (errors or {}).get(key, ""))
        for key, context in leads.items()
    ]
    kind: spans.Kind = "client" if step == "send" else "internal"
    spans.record_steps(f"lead {step}", began_at, steps, size, kind)
