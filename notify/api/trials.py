"""A test send to the consumer of a subscription, over the management API."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any

import msgspec
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from msgplatform.api.bodies import field, text
from msgplatform.api.json import decode
from msgplatform.api.management.resources import audit
from msgplatform.api.schema import operation
from msgplatform.core.connections import RedisError
from msgplatform.core.errors import InvalidInput, NotNow, Unavailable
from notify import directory, operations
from notify.api.serializers import EVENT_TYPE
from notify.api.subscriptions import subscription_of
from notify.intake import intake
from notify.models import BizReceive
from notify.sender import trial_send
from notify.subscriptions import limits

_NULL = msgspec.Raw(b"null")
_MAX_BODY_BYTES = limits.MAX_PAYLOAD_BYTES + 4096


class TestSendBody(msgspec.Struct, forbid_unknown_fields=True):
    """The event to try; without a payload the usual test."""

    __test__ = False  # to pytest the name looks like a test's

    event_type: Annotated[str | None, text("Left out: webhook.test", 128, EVENT_TYPE)] = None
    payload: Annotated[
        msgspec.Raw, field("Any JSON, at most 256 KiB; left out or null: a short usual one")
    ] = msgspec.field(default_factory=lambda: _NULL)  # a default of its own has no schema


class TestOutcomeSerializer(serializers.Serializer[trial_send.Outcome]):
    """What the consumer has answered."""

    __test__ = False

    delivered = serializers.BooleanField(source="is_delivered", help_text="true: it was a 2xx")
    message_id = serializers.CharField(help_text="As the consumer has got it")
    url = serializers.SerializerMethodField(help_text="Without its query and its password")
    status = serializers.IntegerField(help_text="0: there was no HTTP answer")
    seconds = serializers.FloatField()
    address = serializers.CharField(help_text="The address that was connected to")
    body = serializers.CharField(help_text="The beginning of the answer")
    error = serializers.CharField(help_text="Such as timeout, dns or tls; empty with an answer")
    detail = serializers.CharField()

    def get_url(self, outcome: trial_send.Outcome) -> str:
        return limits.shown_url(outcome.url)


class SubscriptionTestView(APIView):
    """Try a subscription."""

    tag = "test sends"
    required_scope = "manage:tests"
    answers_limited_keys = True
    answers_not_now = True
    max_body_bytes = _MAX_BODY_BYTES

    @operation(
        TestSendBody,
        {200: TestOutcomeSerializer},
        ("an event", {"event_type": "order.paid", "payload": {"order": "20261120-7"}}),
    )
    def post(self, request: Request, system: str, consumer: str) -> Response:
        """Try a subscription.

        Sends one signed request to the consumer now, as the platform would deliver an event, and
        answers with what the consumer has answered. It is not counted, and a paused, disabled or
        discarded subscription can be tried too. It waits for at most 15 seconds; 503 while three
        others are being tried, 409 when the subscription cannot be used.
        """
        body = decode(request, TestSendBody, _MAX_BODY_BYTES)
        event_type = trial_send.EVENT_TYPE if body.event_type is None else body.event_type
        intake.check_event_type(event_type)
        payload = _payload(body)
        rows = BizReceive.objects.select_related("biz", "receive")
        row = subscription_of(request, rows, system, consumer)
        # Before it is sent: if the process dies in between, the log has who did it.
        audit(request, "subscription_tested", f"{row} #{row.pk}", event_type=event_type)
        outcome = _send(row, event_type, payload)
        if outcome.is_delivered:  # deliveries behind the breaker need not wait for its probe
            with suppress(RedisError):
                operations.probe_now(row)
        return Response(TestOutcomeSerializer(outcome).data)


def _payload(body: TestSendBody) -> str:
    """The payload, '' for the usual one. Raises InvalidInput."""
    raw = b"" if body.payload == _NULL else bytes(body.payload)
    if len(raw) > limits.MAX_PAYLOAD_BYTES:
        raise InvalidInput("A payload has 256 KiB at most.", "payload")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise InvalidInput("Write it in UTF-8.", "payload") from None


def _send(row: BizReceive, event_type: str, payload: str) -> Any:
    try:
        return trial_send.send(row, event_type, payload)
    except Unavailable:
        raise Unavailable("Other test sends wait for their answers; repeat it later.") from None
    except directory.UNUSABLE as error:
        raise NotNow(f"This subscription cannot be used: {error}") from None
