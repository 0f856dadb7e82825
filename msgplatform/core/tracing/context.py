"""`traceparent` of W3C Trace Context, and the decision whether a message is traced.

    traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01

A header that breaks the specification is ignored, as the specification says. `tracestate` is
dropped, as a participant may: the platform adds nothing to it.
"""

import random
import re
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Literal, NamedTuple

from django.conf import settings
from structlog.contextvars import bound_contextvars

Kind = Literal["internal", "server", "client", "producer", "consumer"]  # of a span
Value = str | int | float | bool  # of a span's attribute
MAX_LINKS = 500  # of a span, and so of a batch
# Version 00 has exactly these parts; a later version may have more, behind another "-".
_FORM = re.compile(r"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 1
# The `traceparent` of the request that this thread or task handles.
_of_request: ContextVar[str] = ContextVar("traceparent", default="")


class Context(NamedTuple):
    """The trace and the span that a `traceparent` names, in hexadecimal."""

    trace_id: str
    span_id: str
    is_sampled: bool = True

    @property
    def text(self) -> str:
        """The `traceparent`, in version 00."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.is_sampled else '00'}"


class Start(NamedTuple):
    """The start of a traced message: its parent (None: the message begins a trace), and its time in
    unix nanoseconds."""

    parent: Context | None
    at: int


def is_on() -> bool:
    """True if traces are exported, which a rehearsal of a restore must not do."""
    return bool(settings.OTEL_EXPORTER_OTLP_ENDPOINT) and settings.OUTBOUND


def parse(text: str) -> Context | None:
    """The context of a `traceparent`; None for an invalid text."""
    match = _FORM.fullmatch(text.strip())
    if match is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    if (version == "00" and more) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    return Context(trace_id, span_id, bool(int(flags, 16) & _SAMPLED))


def trace_id_of(text: str) -> str:
    """The id of the trace that a stored `traceparent` names; '' for an invalid text."""
    context = parse(text)
    return context.trace_id if context else ""


def of_request(header: str) -> AbstractContextManager[None]:
    """Set the header `traceparent` of the request ('': none) for the block, and put its trace into
    log lines."""
    return _of_traced_request(header) if header and is_on() else nullcontext()


@contextmanager
def _of_traced_request(header: str) -> Iterator[None]:
    token = _of_request.set(header)
    try:
        with bound_contextvars(**log_facts(header)):
            yield
    finally:
        _of_request.reset(token)


def log_facts(header: str) -> dict[str, str]:
    """The facts of a log line about a request with this header: the trace, if any."""
    context = parse(header) if header and is_on() else None
    return {"trace_id": context.trace_id} if context and context.is_sampled else {}


def begin(header: str | None = None) -> Start | None:
    """Decide whether a new message is traced; None: not traced.

    `header` is the message's own `traceparent`; by default the request's header counts.
    """
    if not is_on():
        return None
    text = header or _of_request.get()
    context = parse(text) if text else None
    if context is not None:
        return Start(context, time.time_ns()) if context.is_sampled else None
    if random.random() >= settings.OTEL_TRACES_SAMPLER_ARG:  # noqa: S311 - no secret
        return None
    return Start(None, time.time_ns())
