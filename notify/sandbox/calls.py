"""The calls that a sandbox has kept, and the reason why a signature is good or not."""

import hmac
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from django.utils import timezone
from django.utils.translation import gettext_noop as _

from msgplatform.core.lazy_text import translate
from msgplatform.core.sandbox import Kept, Sandbox
from notify.models import BizReceive
from notify.subscriptions import signing

# The tolerance of Standard Webhooks' libraries.
TOLERANCE_SECONDS = 300
CURRENT, PREVIOUS, UNSIGNED, STALE, WRONG = "current", "previous", "unsigned", "stale", "wrong"
_TEXTS = {
    CURRENT: _("Signed with the consumer's secret."),
    PREVIOUS: _("Signed with the secret before the rotation only; it still counts."),
    UNSIGNED: _("A header of the signature is missing, or its time is no number."),
    STALE: _("The signature fits, but its time is off by more than five minutes: a consumer "
             "refuses it, since somebody may have recorded it."),
    WRONG: _("No entry of the signature fits the secret, the id, the time and the body."),
}  # fmt: skip


class Call(msgspec.Struct, frozen=True):
    """A received request. `body`: the beginning of the body; `size`: bytes of the whole body."""

    message_id: str
    headers: dict[str, str]
    body: str
    size: int
    signature: str
    status: int
    delay: float = 0.0


class Arrival(Kept[Call], frozen=True):
    """A call for the console. `number` counts the calls with the same message id from 1 on."""

    number: int

    @property
    def is_verified(self) -> bool:
        """True if a consumer would accept the signature."""
        return self.call.signature in (CURRENT, PREVIOUS)

    @property
    def explanation(self) -> str:
        return str(translate(_TEXTS.get(self.call.signature, "")))

    @property
    def is_cut(self) -> bool:
        return self.call.size > len(self.call.body.encode())


def store(subscription: int) -> Sandbox:
    """The store of the sandbox that has this subscription."""
    return Sandbox(f"notify:{subscription}")


def arrivals(subscription: int) -> list[Arrival]:
    """The calls of the last hour, the newest first. Raises RedisError."""
    counts: Counter[str] = Counter()
    rows: list[Arrival] = []
    for entry in reversed(store(subscription).calls(Call)):
        counts[entry.call.message_id] += 1
        rows.append(Arrival(entry.at, entry.call, counts[entry.call.message_id]))
    return rows[::-1]


def select(rows: Iterable[Arrival], filters: Mapping[str, str]) -> list[Arrival]:
    """The rows that match these filters: message, event_type, answer (ok, failed)."""
    return [
        row
        for row in rows
        if filters.get("message", "") in ("", row.call.message_id)
        and filters.get("event_type", "") in ("", event_type(row.call))
        and filters.get("answer", "") in ("", "ok" if row.call.status < 300 else "failed")
    ]


def event_type(call: Call) -> str:
    """The event type, from the header of a binary CloudEvent or from the body; '' without one."""
    if name := call.headers.get("Ce-Type"):
        return name
    try:
        document: Any = msgspec.json.decode(call.body)
    except (msgspec.DecodeError, RecursionError):
        return ""
    return str(document.get("type", "")) if isinstance(document, dict) else ""


def judge(headers: Mapping[str, str], prefix: str, body: bytes, keys: Sequence[bytes]) -> str:
    """The verdict on a signature, one of the constants above. The first key is the current key."""
    message_id = headers.get(f"{prefix}-id", "")
    stamp, entries = headers.get(f"{prefix}-timestamp", ""), headers.get(f"{prefix}-signature", "")
    if not (message_id and entries and stamp.isdecimal() and len(stamp) < 16):
        return UNSIGNED
    for key in keys:
        right = signing.sign([key], message_id, int(stamp), body)
        if any(hmac.compare_digest(right.encode(), entry.encode()) for entry in entries.split()):
            if abs(time.time() - int(stamp)) > TOLERANCE_SECONDS:
                return STALE
            return CURRENT if key == keys[0] else PREVIOUS
    return WRONG


def keys_of(row: BizReceive) -> list[bytes]:
    """The consumer's secrets, the current secret first. Raises Undecryptable, ValueError."""
    consumer = row.receive
    until = consumer.previous_secret_until
    has_previous = until is not None and until > timezone.now() and consumer.previous_secret
    secrets = [consumer.secret, *([consumer.previous_secret] if has_previous else [])]
    return [signing.decode_secret(secret) for secret in secrets]
