"""Spans of messages and of batches, and the traces of messages in the table `message_trace`. Every
function may be called while traces are off.

A message's spans are children of the span of its intake, in its caller's trace. The span of a batch
is in a trace of its own with links to the messages, because a batch has no single caller.

The table has a row for each traced message of Notify, SMS (when archived) and CRM sync, and no
other rows, for programs that handle a message later. Programs read it only while traces are on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from django.db import connection

from msgplatform.core.data import chunks, sql
from msgplatform.core.tracing.context import MAX_LINKS, Context, Kind, Value, is_on, parse

if TYPE_CHECKING:
    from opentelemetry.trace import Span

__all__ = [
    "MAX_LINKS", "Kind", "Span", "Step", "Value", "context_of", "contexts", "end", "nanoseconds",
    "now", "read_contexts", "record", "record_batch", "record_steps", "start", "store_contexts",
]  # fmt: skip


def start(
    name: str,
    parent: Context | None,
    *,
    kind: Kind = "internal",
    at: int | None = None,
    links: Iterable[Context] = (),
    **attributes: Value,
) -> Span:
    """Begin a span of a traced message; `at` in unix nanoseconds, by default now.

    A span without `parent` begins a trace.
    """
    span: Span = starters[0](name, parent, kind, at, links, _prefix(attributes))
    return span


# Begins an exported span, with the positional arguments of `operation/trace_export/export.py`.
# Without it there are no traces.
starters: list[Callable[..., Span]] = []


def end(span: Span, *, at: int | None = None, error: str = "", **attributes: Value) -> None:
    """End a span. `error` is the reason why its work failed, '' for success."""
    span.set_attributes(_prefix(attributes))
    if error:
        from opentelemetry.trace import StatusCode

        span.set_status(StatusCode.ERROR, error)
    span.end(at)


def record(
    name: str,
    parent: Context | None,
    started_at: int,
    *,
    kind: Kind = "internal",
    ended_at: int | None = None,
    links: Iterable[Context] = (),
    error: str = "",
    **attributes: Value,
) -> Context:
    """Record an ended span; times in unix nanoseconds. Returns the span's context."""
    span = start(name, parent, kind=kind, at=started_at, links=links, **attributes)
    end(span, at=ended_at, error=error)
    return context_of(span)


def record_batch(name: str, started_at: int, messages: Sequence[Context], size: int) -> Context:
    """Record the span of a batch of `size` messages, of which `messages` are traced."""
    return record(
        name, None, started_at, links=messages[:MAX_LINKS], batch_size=size,
        batch_traced=len(messages),
    )  # fmt: skip


class Step(NamedTuple):
    """The part of a batch's work for one traced message; `parent` is the message's context."""

    parent: Context
    attributes: Mapping[str, Value]
    error: str = ""


def record_steps(
    name: str, started_at: int, steps: Sequence[Step], size: int, kind: Kind = "internal"
) -> None:
    """Record the work of a batch of `size` messages: a span of the batch, and a span with a link to
    it for each traced message. No spans if no message is traced."""
    if not steps:
        return
    batch = record_batch(f"{name} batch", started_at, [step.parent for step in steps], size)
    for step in steps:
        record(
            name, step.parent, started_at, kind=kind, ended_at=None, links=[batch],
            error=step.error, **step.attributes,
        )  # fmt: skip


def context_of(span: Span) -> Context:
    """The context of the span, as the parent of its children."""
    ids = span.get_span_context()
    return Context(f"{ids.trace_id:032x}", f"{ids.span_id:016x}")


def contexts(texts: Mapping[int, str]) -> dict[int, Context]:
    """Message → context, of stored texts."""
    pairs = ((message, parse(text)) for message, text in texts.items())
    return {message: context for message, context in pairs if context}


_TABLE, _CHUNK = "message_trace", 500


def store_contexts(context_by_message: Mapping[int, Context]) -> None:
    """Store the contexts of messages, in the messages' transaction. May be repeated."""
    if context_by_message:
        rows = [(message, context.text) for message, context in context_by_message.items()]
        sql.insert_or_keep(_TABLE, ("id", "traceparent"), rows)


def read_contexts(ids: Iterable[int]) -> dict[int, Context]:
    """Message → context, for traced messages among these. Reads nothing while traces are off."""
    if not is_on():
        return {}
    texts: dict[int, str] = {}
    with connection.cursor() as cursor:
        for chunk in chunks(sorted(set(ids)), _CHUNK):
            numbers = ",".join(map(str, map(int, chunk)))
            cursor.execute(f"SELECT id, traceparent FROM {_TABLE} WHERE id IN ({numbers})")  # noqa: S608
            texts.update(cursor.fetchall())
    return contexts(texts)


def nanoseconds(seconds: float) -> int:
    """Unix nanoseconds of unix seconds."""
    return int(seconds * 1e9)


def now() -> int:
    """Unix nanoseconds, while traces are on; 0 else."""
    return time.time_ns() if is_on() else 0


def _prefix(attributes: Mapping[str, Value]) -> dict[str, Value]:
    """The attributes with the platform's prefix, unless OpenTelemetry's conventions name them."""
    return {
        _CONVENTIONS.get(name, f"msgplatform.{name}"): value for name, value in attributes.items()
    }


# Names of OpenTelemetry's semantic conventions.
_CONVENTIONS = {
    "message_id": "messaging.message.id",
    "batch_size": "messaging.batch.message_count",
    "http_status": "http.response.status_code",
    "http_method": "http.request.method",
    "url": "url.full",
    "host": "server.address",
    "error_type": "error.type",
}
