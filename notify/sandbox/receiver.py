"""The address that receives deliveries for a sandbox.

The address needs no login: only the platform knows the token of the path. Every wrong address gets
the same 404, so that nobody learns which sandboxes exist.
"""

from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from msgplatform.core import logging, sandbox
from msgplatform.core.connections import RedisError
from msgplatform.core.errors import Undecryptable
from msgplatform.core.sandbox import MAX_BODY_BYTES, Behaviour
from notify.models import BizReceive
from notify.sandbox import calls
from notify.sandbox.calls import Call, judge, keys_of
from notify.subscriptions.limits import MASK, MAX_PAYLOAD_BYTES
from notify.subscriptions.sandbox import is_sandbox, is_token

MAX_BYTES = MAX_PAYLOAD_BYTES + 16 * 1024  # the payload in its envelope
_MAX_HEADERS, _MAX_VALUE = 60, 1000
# Headers of the transport, not of the delivery.
_HIDDEN = ("host", "connection", "content-length", "x-forwarded-", "x-real-ip", "forwarded")
USUAL_STATUS, MAX_STATUS = 200, 599

log = logging.get(__name__)


@csrf_exempt
@require_POST
def receive(request: HttpRequest, subscription: int, token: str) -> HttpResponse:
    """Keep a delivery, and answer by the sandbox's behaviour."""
    row = _row(subscription, token)
    if row is None:
        return HttpResponse("There is no such sandbox.\n", "text/plain", 404)
    if len(request.body) > MAX_BYTES:
        return HttpResponse(f"A body has {MAX_BYTES} bytes at most.\n", "text/plain", 413)
    store = calls.store(subscription)
    try:
        behaviour = store.take_behaviour()
        status = status_of(behaviour)
        lower = {name.lower(): value for name, value in request.headers.items()}
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
        store.keep(
            Call(
                lower.get(f"{prefix}-id", "")[:64],
                dict(sorted(headers)[:_MAX_HEADERS]),
                request.body[:MAX_BODY_BYTES].decode("utf-8", "replace"),
                len(request.body),
                judge(lower, prefix, request.body, keys_of(row)),
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
    """The HTTP status of the answer."""
    return int(behaviour.answer) if behaviour.answer.isdecimal() else USUAL_STATUS


def _row(subscription: int, token: str) -> BizReceive | None:
    """The subscription, if the token is right for it; None for every other address."""
    if not sandbox.is_on():
        return None
    row = BizReceive.objects.select_related("receive").filter(pk=subscription).first()
    if row is None or not is_sandbox(row.receive.url):
        return None
    try:
        return row if is_token(token, subscription, keys_of(row)) else None
    except (Undecryptable, ValueError):
        return None


urlpatterns = [path("sandbox/notify/<int:subscription>/<str:token>", receive, name="sandbox")]
