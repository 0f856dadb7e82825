"""Which message resends which: the idempotency key of a resent message tells it."""

from __future__ import annotations

import re

from gateway.lifecycle import store
from gateway.monitor.failures import resend_key

_KEY = re.compile(r"resend:([0-9]{1,19}):1")


def original_of(idempotency_key: str) -> str:
    """The message that one with this key resends, '' if it resends none."""
    match = _KEY.fullmatch(idempotency_key)
    return match[1] if match else ""


def repeat_of(biz: int, message: int) -> str:
    """The message that resends this one, '' if there is none. Raises RedisError."""
    (call,) = store.first_calls([(biz, resend_key(message))])
    return call.ids[0] if call else ""
