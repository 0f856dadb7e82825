"""Publish an event in the transaction that makes it true.

    with transaction.atomic():
        order.save()
        publish("order.paid", {"order": order.number})

Order and event are committed together. The Agent (`run_agent`) relays the event to the intake.
"""

import json
import math
import re
import uuid
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db import DEFAULT_DB_ALIAS, connections

# The intake's rules (docs/agent.md). An event that breaks a rule would end in outbox_dead.
MAX_PAYLOAD_BYTES = 256 * 1024
MAX_DEPTH = 100  # levels of nested arrays and objects
_EVENT_TYPE = re.compile(r"(?=.{1,128}\Z)[A-Za-z0-9_:/-]+(\.[A-Za-z0-9_:/-]+)*", re.ASCII)
_CHANNEL = re.compile(r"[A-Za-z0-9_.:-]{0,64}")
_KEY = re.compile(r"[\x21-\x7e]{1,128}")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_INSERT = (
    "INSERT INTO outbox (msg_key, event_type, channel, payload, traceparent)"
    " VALUES (%s, %s, %s, %s, %s)"
)


class InvalidEvent(ValueError):
    """The event would be refused; `field` is the argument to change, the message says how."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


def publish(
    event_type: str,
    payload: Any,
    *,
    channel: str = "",
    idempotency_key: str | None = None,
    traceparent: str = "",
    using: str = DEFAULT_DB_ALIAS,
) -> str:
    """Insert an event into the outbox of the database `using`; returns its idempotency key.

    `payload` is anything that JSON can hold, with dates, UUIDs and Decimals as Django writes them;
    or bytes, which are taken as JSON text and arrive as they are. Without a key of your own each
    call is a new event. `traceparent` is the trace that the event goes on in; a malformed one is
    ignored, as W3C Trace Context says. Raises InvalidEvent, before anything is written.
    """
    _check(_EVENT_TYPE, "event_type", event_type, "letters, digits and _ - : / in parts joined by "
           "dots, at most 128 characters, such as order.paid")  # fmt: skip
    _check(_CHANNEL, "channel", channel, "at most 64 letters, digits and _ . : -")
    key = uuid.uuid4().hex if idempotency_key is None else idempotency_key
    _check(_KEY, "idempotency_key", key, "1 to 128 visible ASCII characters without spaces")
    # Bytes are checked and sent unchanged, so that numbers and spaces arrive as written.
    raw = bytes(payload) if isinstance(payload, (bytes, bytearray, memoryview)) else None
    try:
        if raw is None:
            text = json.dumps(payload, cls=DjangoJSONEncoder, ensure_ascii=False, allow_nan=False,
                              separators=(",", ":"))  # fmt: skip
            raw = text.encode()
        else:
            text = raw.decode()
            document = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
            # A half of a surrogate pair is no text.
            json.dumps(document, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEvent("payload", f"it cannot be sent as JSON in UTF-8: {error}") from None
    if len(raw) > MAX_PAYLOAD_BYTES:
        raise InvalidEvent(
            "payload",
            f"it has {len(raw)} bytes of JSON and must not have more than {MAX_PAYLOAD_BYTES}; "
            "publish a reference to what is large",
        )
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH:
        depth, level = 0, [json.loads(text)]
        while level := [part for part in level if isinstance(part, (dict, list))]:
            depth += 1
            level = [
                below
                for part in level
                for below in (part.values() if isinstance(part, dict) else part)
            ]
        if depth > MAX_DEPTH:
            raise InvalidEvent("payload", f"it is nested more than {MAX_DEPTH} levels deep")
    trace = traceparent if _TRACEPARENT.fullmatch(traceparent) else ""
    # The INSERT belongs to the caller's transaction.
    with connections[using].cursor() as cursor:
        cursor.execute(_INSERT, (key, event_type, channel, text, trace))
    return key


def _check(pattern: re.Pattern[str], field: str, value: object, rule: str) -> None:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise InvalidEvent(field, f"use {rule}")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(number: str) -> float:
    value = float(number)
    if math.isinf(value):
        raise ValueError(f"{number} is out of range")
    return value
