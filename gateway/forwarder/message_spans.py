"""The spans of messages that are traced: how long they waited, were submitted, and waited for their
Report.

They are recorded when an ending is published, from the times that Redis keeps: a sender or a
receiver that is killed takes no span with it. The event of the ending is a child of its span, so
that the trace goes on to the consumer of the Reports; an event of several endings is no child.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gateway.lifecycle.messages import Finished
from msgplatform.core.tracing import spans
from msgplatform.core.tracing.context import Start, is_on, parse
from notify.intake.intake import Event


def traced(event: Event, message: Finished) -> Event:
    """The event of an ending, in the trace of its message."""
    context = parse(message.mt.trace) if message.mt.trace and is_on() else None
    if context is None:
        return event
    # The steps that are over; the event follows the last one.
    last = context
    steps = (
        ("sms wait", message.accepted_at, message.submitted_at or message.ended_at),
        ("sms submit", message.submitted_at, message.responded_at),
        ("sms report", message.responded_at or message.submitted_at, message.reported_at),
    )
    error = message.error if message.final in ("failed", "expired") else ""
    for name, began, ended in steps:
        if began and ended:
            last = spans.record(
                name, context, spans.nanoseconds(began), ended_at=spans.nanoseconds(ended),
                kind="client" if name == "sms submit" else "internal", error=error,
                message_id=message.id, gateway=message.gateway, state=message.final,
            )  # fmt: skip
    return replace(event, trace=Start(last, spans.now()))


def record_batch(messages: Sequence[Finished], began_at: int) -> None:
    """Record the span of a turn that published these; `began_at` is 0 while traces are off."""
    contexts = [context for m in messages if (context := parse(m.mt.trace))] if began_at else []
    if contexts:
        spans.record_batch("sms forward batch", began_at, contexts, len(messages))
