"""Trials of a subscription, over the management API: a test send to its consumer, and a filter on
the latest messages."""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

import msgspec
from django.core.exceptions import ValidationError
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from msgplatform.core.errors import InvalidInput
from msgplatform.doors.api.bodies import field, text
from msgplatform.doors.api.json import decode
from msgplatform.doors.api.management.resources import audit
from msgplatform.doors.api.schema import operation
from notify.api.subscriptions import subscription_of
from notify.intake import intake
from notify.messages import filtered
from notify.sender import trial_send
from notify.subscriptions import limits, payload_filter
from notify.subscriptions.matching import EVENT_TYPE_PATTERN

_NULL = msgspec.Raw(b"null")
_MAX_BODY_BYTES = limits.MAX_PAYLOAD_BYTES + 4096


class TestSendBody(msgspec.Struct, forbid_unknown_fields=True):
    """The event to try; without a payload the usual test."""

    __test__ = False  # to pytest the name looks like a test's

    event_type: Annotated[
        str | None,
        text("Left out: webhook.test", 128, EVENT_TYPE_PATTERN),
    ] = None
    payload: Annotated[
        msgspec.Raw, field("Any JSON, at most 256 KiB; left out or null: a short usual one")
    ] = msgspec.field(default_factory=lambda: _NULL)  # a default of its own has no schema


class TestOutcomeSerializer(serializers.Serializer[trial_send.Outcome]):
    """The consumer's answer."""

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
        event_type = trial_send.TEST_EVENT_TYPE if body.event_type is None else body.event_type
        intake.check_event_type(event_type)
        try:
            payload = "" if body.payload == _NULL else bytes(body.payload).decode()
        except UnicodeDecodeError:
            raise InvalidInput("Write it in UTF-8.", "payload") from None
        row = subscription_of(request, system, consumer)
        outcome = trial_send.try_consumer(row, event_type, payload, partial(audit, request))
        return Response(TestOutcomeSerializer(outcome).data)


class FilterTrialBody(msgspec.Struct, forbid_unknown_fields=True):
    """The filter to try; without one that of the subscription."""

    filter: Annotated[
        dict[str, Any] | None, field("As a subscription has it; left out or null: its own")
    ] = None


class TriedMessageSerializer(serializers.Serializer[filtered.TriedMessage]):
    """An event, and whether it would have come."""

    id = serializers.CharField()
    event_type = serializers.CharField()
    accepted_at = serializers.DateTimeField()
    matches = serializers.SerializerMethodField()
    reason = serializers.SerializerMethodField(
        help_text="The condition that it does not meet, without the event's values"
    )

    def get_matches(self, message: filtered.TriedMessage) -> bool:
        return message.why is None

    def get_reason(self, message: filtered.TriedMessage) -> str:
        return message.why.masked if message.why else ""


class DayCountsSerializer(serializers.Serializer[filtered.DayCounts]):
    """Events of the subscription's types within the last 24 hours."""

    events = serializers.IntegerField()
    coming = serializers.IntegerField(help_text="Those that the subscription's own filter lets in")
    matching = serializers.IntegerField(help_text="Those that would come with the filter tried")
    is_whole = serializers.BooleanField(
        help_text="false: there are more than are counted in a trial, the latest are"
    )


class FilterTrialSerializer(serializers.Serializer[Mapping[str, Any]]):
    """The latest events of the subscription's types, newest first."""

    tried = serializers.IntegerField(help_text=f"Events, at most {filtered.MAX_TRIED}")
    matching = serializers.IntegerField(help_text="Those that would have come")
    last_day = DayCountsSerializer()
    events = TriedMessageSerializer(many=True)


class FilterTrialView(APIView):
    """Try a filter."""

    tag = "test sends"
    # A key that tries values one by one reads payloads; this scope may send payloads anyway.
    required_scope = "manage:subscriptions"
    answers_limited_keys = True

    @operation(
        FilterTrialBody,
        {200: FilterTrialSerializer},
        ("totals over 100", {"filter": {"data": {"total": {"$gt": 100}}}}),
    )
    def post(self, request: Request, system: str, consumer: str) -> Response:
        """Try a filter.

        Says which of the latest events of the subscription's types and channels would have come,
        and which condition each of the others does not meet; and how many of the last 24 hours.
        Nothing is changed or sent.
        """
        body = decode(request, FilterTrialBody, _MAX_BODY_BYTES)
        row = subscription_of(request, system, consumer)
        try:
            node = payload_filter.compiled(row.filter if body.filter is None else body.filter)
        except ValidationError as error:
            raise InvalidInput("; ".join(error.messages), "filter") from None
        trial = filtered.try_filter(row, node)
        outcome = {
            "tried": len(trial.messages),
            "matching": sum(event.why is None for event in trial.messages),
            "last_day": trial.day,
            "events": trial.messages,
        }
        return Response(FilterTrialSerializer(outcome).data)
