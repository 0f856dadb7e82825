"""The spans of traced items in an intake: from the request until the items are durable.

A span begins before the transaction that stores its item, which also stores its context: the spans
of later programs are its children.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from msgplatform.core.intake.verdicts import Verdict
from msgplatform.core.tracing import message_rows, spans
from msgplatform.core.tracing.context import Start, is_on

if TYPE_CHECKING:
    from opentelemetry.trace import Span

Spans = Mapping[int, "Span"]  # by the new ids of the items


class TracedItem(Protocol):
    """An item of an intake; `trace` is None unless it is traced."""

    id: int
    biz: int
    trace: Start | None


def begin(flow: str, items: Sequence[TracedItem]) -> Spans:
    """Begin the spans of the traced items; usually there are none."""
    if not is_on():
        return {}
    return {
        item.id: spans.start(
            f"{flow} accept", item.trace.parent, kind="server", at=item.trace.at, system=item.biz
        )
        for item in items
        if item.trace
    }


def remember(begun: Spans, new_ids: Sequence[int]) -> None:
    """Store the contexts of new items, in the transaction that stores the items."""
    message_rows.insert({
        item_id: spans.context_of(begun[item_id]) for item_id in new_ids if item_id in begun
    })  # fmt: skip


def end(begun: Spans, items: Sequence[TracedItem], verdicts: Sequence[Verdict]) -> None:
    """End the spans. The span of a duplicate names the message that was stored before."""
    if not begun:
        return
    for item, verdict in zip(items, verdicts, strict=True):
        if span := begun.get(item.id):
            error = verdict.code if verdict.outcome == "rejected" else ""
            spans.end(span, error=error, message_id=str(verdict.id), outcome=verdict.outcome)
