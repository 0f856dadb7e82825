"""Listening: a program on an engineer's machine fetches the deliveries of a consumer for
development, one after the other, and sends back each result."""

import re
from typing import Annotated, Any, cast

import msgspec
from django.conf import settings
from django.http import Http404
from django.urls import path
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from msgplatform.core.errors import InvalidInput, NotNow
from msgplatform.core.http import messages as http
from msgplatform.core.web import long_polls
from msgplatform.doors.api.access.authentication import caller_of
from msgplatform.doors.api.bodies import field, text
from msgplatform.doors.api.json import decode
from msgplatform.doors.api.schema import operation
from notify import directory
from notify.listening import leases
from notify.models import BizReceive, ReceiveMsg
from notify.orders import MAX_RESPONSE_BODY

SCOPE = "events:listen"
_LISTENER = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_CLAIM = re.compile(rf"{leases.CLAIM_PREFIX}[0-9a-f]{{25}}")
_MAX_BODY_BYTES = 128 * 1024
_MAX_HEADERS_LENGTH = 8192  # characters
_MAX_DETAIL_LENGTH = 300
_MAX_SECONDS = 86_400.0


class ListenBody(msgspec.Struct, forbid_unknown_fields=True):
    """The listener."""

    listener: Annotated[
        str,
        text(
            "A name of the program that listens, made anew at each of its starts",
            64,
            f"^{_LISTENER.pattern}$",
        ),
    ]
    take_over: Annotated[
        bool | None, field("true: take the place of another listener, whose delivery comes again")
    ] = None


class ForwardedRequestSerializer(serializers.Serializer[Any]):
    """The whole request that the platform would send to an address."""

    method = serializers.CharField(source="request.method")
    headers = serializers.DictField(child=serializers.CharField())
    body = serializers.CharField(help_text="Send exactly this, in UTF-8: the signature covers it")


class LeasedDeliverySerializer(serializers.Serializer[Any]):
    """A delivery that this listener has until `lease_until`."""

    id = serializers.CharField()
    claim = serializers.CharField(help_text="Names this lease; goes back with the result")
    message_id = serializers.CharField(
        source="message.id", help_text="As in webhook-id: duplicates have the same"
    )
    event_type = serializers.CharField(source="message.event_type")
    attempt = serializers.IntegerField(help_text="1 for the first")
    lease_until = serializers.DateTimeField(
        source="until", help_text="Without a result until then the delivery may be given out again"
    )
    timeout = serializers.FloatField(
        source="request.timeout", help_text="Seconds that the request may take"
    )
    request = ForwardedRequestSerializer(source="*")


class NextDeliverySerializer(serializers.Serializer[Any]):
    """The next delivery, or null when none came in time."""

    delivery = LeasedDeliverySerializer(allow_null=True)
    subscription = serializers.CharField(help_text="system/consumer")
    status = serializers.CharField(
        help_text="Of the subscription; nothing comes while it is paused, disabled or discarded"
    )


class ResultBody(msgspec.Struct, forbid_unknown_fields=True):
    """The outcome of a delivery."""

    claim: Annotated[str, text("Of the lease", 32, f"^{_CLAIM.pattern}$")]
    status: Annotated[int, field("HTTP status of the answer; 0: none came", minimum=0, maximum=599)]
    error: Annotated[
        str | None,
        field("Why no answer came, or not all of it", enum=["", *leases.ERRORS, None]),
    ] = None
    detail: Annotated[
        str | None, field("A sentence about the error", maxLength=_MAX_DETAIL_LENGTH)
    ] = None
    seconds: Annotated[
        float | None, field("How long the request took", minimum=0, maximum=_MAX_SECONDS)
    ] = None
    headers: Annotated[dict[str, str] | None, field("Of the answer; Retry-After is obeyed")] = None
    body: Annotated[
        str | None, field(f"Of the answer, as text; its first {MAX_RESPONSE_BODY} bytes are kept")
    ] = None

    def response(self) -> http.Response:
        """The answer in the HTTP engine's form. `request` is None: the platform made no request."""
        lines = [f"HTTP/1.1 {self.status}", *(f"{k}: {v}" for k, v in (self.headers or {}).items())]
        raw = "\r\n".join([*lines, "", ""]).encode("utf-8", "replace") if self.status else b""
        body = (self.body or "").encode("utf-8", "replace")
        detail = "".join(c if c.isprintable() else " " for c in self.detail or "")
        return http.Response(
            cast(http.Request, None), self.status, raw, body, self.seconds or 0.0,
            self.error or "", detail, "",
        )  # fmt: skip


class ResultSerializer(serializers.Serializer[leases.Outcome]):
    """The state of the delivery."""

    outcome = serializers.ChoiceField(choices=["delivered", "failed", "exhausted"])
    attempt = serializers.IntegerField(help_text="The number of the attempt")
    next_attempt_at = serializers.DateTimeField(
        allow_null=True, help_text="null: there is none, or it is under way"
    )


class ListenView(APIView):
    """The deliveries of a consumer that has no address."""

    tag = "listening"
    required_scope = SCOPE
    answers_not_now = True

    @operation(
        ListenBody,
        {200: NextDeliverySerializer},
        ("a laptop", {"listener": "anna-laptop-3f9c2a"}),
    )
    def post(self, request: Request, consumer: str) -> Response:
        """Wait for the next delivery.

        For a consumer whose `delivery` is `listen`. Answers with the oldest due delivery of the
        key's system, as soon as there is one, with the whole signed request; after 25 seconds
        without one. The next delivery comes after this one's result. A repeat gives the same
        delivery once more, under another `claim`.

        One listener at a time: another one gets 409 (`already-listening`) unless it takes over.
        503 while too many requests wait, or the key of the next payload is missing.
        """
        body = decode(request, ListenBody)
        if not _LISTENER.fullmatch(body.listener):
            raise InvalidInput("Use 1 to 64 letters, digits and . _ : -", "listener")
        row = _subscription(request, consumer)
        if not row.receive.is_listened:
            raise NotNow("The messages of this consumer are pushed to its URL: see `delivery`.")
        subscription = _usable(row)
        has_waited = bool(request.META.get(long_polls.HAS_WAITED))
        # A listener that was displaced while it waited must not take the place back.
        takes_over = bool(body.take_over) and not has_waited
        leases.take_place(row.pk, body.listener, long_polls.SECONDS, takes_over)
        lease = leases.lease_next(subscription)
        if lease:
            leases.take_place(row.pk, body.listener, settings.NOTIFY_LEASE_SECONDS)
        answer = {
            "delivery": lease,
            "subscription": row.full_name,
            "status": BizReceive.Status(row.status).name.lower(),
        }
        response = Response(NextDeliverySerializer(answer).data)
        if lease is None:
            leases.WATCH.ensure_started()
            long_polls.wait_for(response, leases.topic(row.pk), row.biz_id)
        return response


class ListenResultView(APIView):
    """A delivery that a listener has."""

    tag = "listening"
    required_scope = SCOPE
    answers_not_now = True
    max_body_bytes = _MAX_BODY_BYTES

    @operation(
        ResultBody,
        {200: ResultSerializer},
        ("an answer", {"claim": "listen-0123456789abcdef012345678", "status": 200}),
        operation_id="consumers_listen_result_create",
    )
    def post(self, request: Request, consumer: str, pk: int) -> Response:
        """Send the result of a delivery.

        A status of 2xx is a success. Any other result is a failed attempt: it is repeated by the
        subscription's schedule, and in the end exhausted. The same result once more changes
        nothing. 409 (`lease-lost`) when the delivery was given out again meanwhile: the result was
        not counted.
        """
        body = decode(request, ResultBody, _MAX_BODY_BYTES)
        if not _CLAIM.fullmatch(body.claim):
            raise InvalidInput("Send the claim that came with the delivery.", "claim")
        if not (body.status == 0 or 100 <= body.status <= 599):
            raise InvalidInput("Use an HTTP status, or 0 when no answer came.", "status")
        if body.error and body.error not in leases.ERRORS:
            raise InvalidInput(f"Use one of: {', '.join(leases.ERRORS)}.", "error")
        if body.status == 0 and not body.error:
            raise InvalidInput("Say why no answer came.", "error")
        if len(body.detail or "") > _MAX_DETAIL_LENGTH:
            raise InvalidInput(f"Use at most {_MAX_DETAIL_LENGTH} characters.", "detail")
        if not 0 <= (body.seconds or 0.0) <= _MAX_SECONDS:
            raise InvalidInput("Use the seconds that the request took.", "seconds")
        texts = [part for header in (body.headers or {}).items() for part in header]
        if sum(map(len, texts)) > _MAX_HEADERS_LENGTH:
            raise InvalidInput(f"Use at most {_MAX_HEADERS_LENGTH} characters.", "headers")
        if any(set(part) & {"\r", "\n", "\0"} for part in texts):
            raise InvalidInput("A header holds a line break.", "headers")
        row = _subscription(request, consumer)
        delivery = ReceiveMsg.objects.filter(pk=pk, biz_receive_id=row.pk).first()
        if delivery is None:
            raise Http404("There is no such delivery.")
        outcome = leases.record(_usable(row), delivery, body.claim, body.response())
        return Response(ResultSerializer(outcome).data)


def _subscription(request: Request, consumer: str) -> BizReceive:
    """The subscription of the caller's system to this consumer. Raises Http404: whether the
    consumer exists is nothing for a system that has none."""
    rows = BizReceive.objects.select_related("biz", "receive")
    row = rows.filter(biz_id=caller_of(request).biz_id, receive__name=consumer).first()
    if row is None:
        raise Http404("Your system has no subscription to such a consumer.")
    return row


def _usable(row: BizReceive) -> directory.Subscription:
    try:
        return directory.from_row(row)
    except directory.UNUSABLE as error:
        raise NotNow(f"This subscription cannot be used: {error}") from None


urlpatterns = [
    path("consumers/<slug:consumer>/listen", ListenView.as_view(), name="listen"),
    path(
        "consumers/<slug:consumer>/listen/<id:pk>",
        ListenResultView.as_view(),
        name="listen-result",
    ),
]
