"""The spans of marks, of messages that are traced."""

from __future__ import annotations

from collections.abc import Sequence

from msgplatform.core.tracing import spans
from msgplatform.core.tracing.context import parse
from notify.orders import Result


def record(results: Sequence[Result], began_at: int) -> None:
    """Record the marks of results that are stored; `began_at` in unix nanoseconds."""
    contexts = [(result, context) for result in results if (context := parse(result.trace))]
    if not contexts:
        return
    batch = spans.record_batch(
        "notify mark batch", began_at, [context for _, context in contexts], len(results)
    )
    for result, context in contexts:
        spans.record(
            "notify mark", context, began_at, links=[batch],
            delivery=str(result.id), outcome=result.outcome,
        )  # fmt: skip
