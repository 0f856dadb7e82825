"""Which message is another try of which: the idempotency key of a resent message says it."""

from __future__ import annotations

import re

from gateway.given_up import resend_key
from gateway.search import find

_KEY = re.compile(r"resend:([0-9]{1,19}):1")


def original_of(idempotency_key: str) -> str:
    """The message that one with this key repeats, '' when it is none."""
    match = _KEY.fullmatch(idempotency_key)
    return match[1] if match else ""


def again_as(biz: int, message: str) -> list[str]:
    """The message that repeats this one, if there is one."""
    return find.ids_of_key(resend_key(message), [biz])
