"""The platform's own receiver: it keeps a sandbox's requests, with the reason why a signature is
good or not, and answers as a person has set.

The address needs no login: only the platform knows the token of the path. Every wrong address gets
the same 404, so that nobody learns which sandboxes exist.
"""

import hmac
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils.translation import gettext_noop as _
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from msgplatform.core import logging, sandbox
from msgplatform.core.connections import RedisError
from msgplatform.core.errors import Undecryptable
from msgplatform.core.lazy_text import translate_stored
from msgplatform.core.sandbox import MAX_BODY_BYTES, Behaviour, KeptCall, Sandbox
from notify.models import BizReceive
from notify.subscriptions import signing
from notify.subscriptions.limits import MASK, MAX_PAYLOAD_BYTES
from notify.subscriptions.sandbox import is_sandbox, is_token

MAX_BYTES = MAX_PAYLOAD_BYTES + 16 * 1024  # the payload in its envelope
_MAX_HEADERS, _MAX_VALUE = 60, 1000
# Headers of the transport, not of the delivery.
_HIDDEN = ("host", "connection", "content-length", "x-forwarded-", "x-real-ip", "forwarded")
USUAL_STATUS, MAX_STATUS = 200, 599
# The tolerance of Standard Webhooks' libraries.
TOLERANCE_SECONDS = 300
CURRENT, PREVIOUS, UNSIGNED, STALE, WRONG = "current", "previous", "unsigned", "stale", "wrong"
VERDICTS = {
    CURRENT: _("Signed with the consumer's secret."),
    PREVIOUS: _("Signed with the secret before the rotation only; it still counts."),
    UNSIGNED: _("A header of the signature is missing, or its time is no number."),
    STALE: _("The signature fits, but its time is off by more than five minutes: a consumer "
             "refuses it, since somebody may have recorded it."),
    WRONG: _("No entry of the signature fits the secret, the id, the time and the body."),
}  # fmt: skip

log = logging.get(__name__)


class Call(msgspec.Struct, frozen=True):
    """A received request. `body`: the beginning of the body; `size`: bytes of the whole body."""

    message_id: str
    headers: dict[str, str]
    body: str
    size: int
    signature: str
    status: int
    delay: float = 0.0


class Arrival(KeptCall[Call], frozen=True):
    """A call for the console. `number` counts the calls with the same message id from 1 on."""

    number: int

    @property
    def is_verified(self) -> bool:
        """True if a consumer would accept the signature."""
        return self.call.signature in (CURRENT, PREVIOUS)

    @property
    def explanation(self) -> str:
        return str(translate_stored(VERDICTS.get(self.call.signature, "")))

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
        signature = signing.sign([key], message_id, int(stamp), body).encode()
        if any(hmac.compare_digest(signature, entry.encode()) for entry in entries.split()):
            if abs(time.time() - int(stamp)) > TOLERANCE_SECONDS:
                return STALE
            return CURRENT if key == keys[0] else PREVIOUS
    return WRONG


@csrf_exempt
@require_POST
def receive(request: HttpRequest, subscription: int, token: str) -> HttpResponse:
    """Keep a delivery, and answer by the sandbox's behaviour."""
    row = _row(subscription, token)
    if row is None:
        return HttpResponse("There is no such sandbox.\n", "text/plain", 404)
    if len(request.body) > MAX_BYTES:
        return HttpResponse(f"A body has {MAX_BYTES} bytes at most.\n", "text/plain", 413)
    sandbox_store = store(subscription)
    try:
        behaviour = sandbox_store.take_behaviour()
        status = status_of(behaviour)
        lower_headers = {name.lower(): value for name, value in request.headers.items()}
        prefix = row.receive.header_prefix
        # Values of the consumer's own headers are masked, because they may be keys.
        try:
            masked_names = {name.lower() for name in row.receive.headers}
        except Undecryptable:
            masked_names = set()
        headers = [
            (name, MASK if name.lower() in masked_names else value[:_MAX_VALUE])
            for name, value in request.headers.items()
            if not name.lower().startswith(_HIDDEN)
        ]
        sandbox_store.keep(
            Call(
                lower_headers.get(f"{prefix}-id", "")[:64],
                dict(sorted(headers)[:_MAX_HEADERS]),
                request.body[:MAX_BODY_BYTES].decode("utf-8", "replace"),
                len(request.body),
                judge(lower_headers, prefix, request.body, row.receive.keys()),
                status,
                behaviour.delay,
            )
        )
    except RedisError as error:
        # The sender tries again.
        log.warning("sandbox_without_redis", subscription=subscription, why=str(error)[:200])
        return HttpResponse("Redis does not answer.\n", "text/plain", 503)
    text = "" if status in (204, 304) else f"The sandbox answers {status}.\n"
    response = HttpResponse(text, "text/plain", status)
    if behaviour.retry_after:
        response["Retry-After"] = str(behaviour.retry_after)
    if behaviour.delay:
        response[sandbox.DELAY_HEADER] = str(behaviour.delay)
    return response


def status_of(behaviour: Behaviour) -> int:
    return int(behaviour.answer) if behaviour.answer.isdecimal() else USUAL_STATUS


def _row(subscription: int, token: str) -> BizReceive | None:
    """The subscription, if the token is right for it; None for every other address."""
    if not sandbox.is_on():
        return None
    row = BizReceive.objects.select_related("receive").filter(pk=subscription).first()
    if row is None or not is_sandbox(row.receive.url):
        return None
    try:
        return row if is_token(token, subscription, row.receive.keys()) else None
    except (Undecryptable, ValueError):
        return None


urlpatterns = [path("sandbox/notify/<int:subscription>/<str:token>", receive, name="sandbox")]
