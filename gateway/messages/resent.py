"""Which message is another try of which: the idempotency key of a resent message says it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gateway.lifecycle import store
from gateway.monitor.failures import resend_key

_KEY = re.compile(r"resend:([0-9]{1,19}):1")


def original_of(idempotency_key: str) -> str:
    """The message that one with this key repeats, '' when it is none."""
    match = _KEY.fullmatch(idempotency_key)
    return match[1] if match else ""


def again_as(biz: int, message: int) -> str:
    """The message that repeats this one, '' if there is none. Raises RedisError."""
    return repeats([(biz, message)]).get(message, "")


def repeats(messages: Iterable[tuple[int, int]]) -> dict[int, str]:
    """The message that repeats each of these (system, id), for those that are repeated; asked at
    once. Raises RedisError."""
    pairs = list(messages)
    calls = store.first_calls([(biz, resend_key(pk)) for biz, pk in pairs])
    return {pk: call.ids[0] for (_biz, pk), call in zip(pairs, calls, strict=True) if call}
