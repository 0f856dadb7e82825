"""A consumer's sandbox over the management API, for tests of those who receive events."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from msgplatform.api.bodies import field
from msgplatform.api.json import decode
from msgplatform.api.management.resources import audit
from msgplatform.api.query import QueryView
from msgplatform.api.schema import operation
from msgplatform.core import sandbox
from msgplatform.core.errors import InvalidInput, NotNow
from msgplatform.core.sandbox import (
    MAX_BODY_BYTES,
    MAX_COUNT,
    MAX_DELAY_SECONDS,
    MAX_MINUTES,
    Behaviour,
)
from notify.api.subscriptions import subscription_of
from notify.models import BizReceive
from notify.sandbox import calls
from notify.sandbox.receiver import status_of
from notify.subscriptions import sandbox as own

_MAX_BYTES = 4096
_MAX_RETRY_AFTER = 86_400


class BehaviourBody(msgspec.Struct, forbid_unknown_fields=True):
    """How the sandbox answers from now on; {} is the usual: 200, at once."""

    status: Annotated[
        int, field("The HTTP status; 503 is what a proxy answers for a consumer that is down",
                   minimum=200, maximum=599)
    ] = 200  # fmt: skip
    delay: Annotated[
        float, field("Seconds before the answer; longer than the subscription's timeout: none",
                     minimum=0, maximum=MAX_DELAY_SECONDS)
    ] = 0.0  # fmt: skip
    retry_after: Annotated[
        int, field("The header Retry-After in seconds; 0: none",
                   minimum=0, maximum=_MAX_RETRY_AFTER)
    ] = 0  # fmt: skip
    minutes: Annotated[
        int, field("For how long, then it answers as usual", minimum=1, maximum=MAX_MINUTES)
    ] = MAX_MINUTES
    count: Annotated[
        int | None, field("For so many requests at most; null: any",
                          minimum=1, maximum=MAX_COUNT)
    ] = None  # fmt: skip


class SandboxCallSerializer(serializers.Serializer[calls.Arrival]):
    """A request that the sandbox got."""

    at = serializers.SerializerMethodField(help_text="When it came")
    message_id = serializers.CharField(source="call.message_id")
    event_type = serializers.SerializerMethodField(help_text="Empty when the body has none")
    number = serializers.IntegerField(help_text="1 for the first request with this message id")
    headers = serializers.DictField(
        source="call.headers", child=serializers.CharField(),
        help_text="Values of the consumer's own headers are masked",
    )  # fmt: skip
    body = serializers.CharField(
        source="call.body", help_text=f"The first {MAX_BODY_BYTES // 1024} KiB"
    )
    size = serializers.IntegerField(source="call.size", help_text="Of the whole body, in bytes")
    verified = serializers.BooleanField(
        source="is_verified", help_text="true: a consumer would accept the signature"
    )
    signature = serializers.ChoiceField(
        choices=[calls.CURRENT, calls.PREVIOUS, calls.UNSIGNED, calls.STALE, calls.WRONG],
        source="call.signature",
        help_text="Why: the secret that fits, or what is wrong",
    )
    status = serializers.IntegerField(source="call.status", help_text="What was answered")
    delay = serializers.FloatField(source="call.delay", help_text="Seconds before the answer")

    def get_at(self, row: calls.Arrival) -> datetime:
        return datetime.fromtimestamp(row.at, UTC)

    def get_event_type(self, row: calls.Arrival) -> str:
        return calls.event_type(row.call)


class BehaviourSerializer(serializers.Serializer[Behaviour]):
    """How it answers now."""

    status = serializers.SerializerMethodField()
    delay = serializers.FloatField()
    retry_after = serializers.IntegerField()
    until = serializers.SerializerMethodField(help_text="null: it is the usual answer")
    count = serializers.IntegerField(allow_null=True, help_text="Requests for which it still holds")

    def get_status(self, behaviour: Behaviour) -> int:
        return status_of(behaviour)

    def get_until(self, behaviour: Behaviour) -> datetime | None:
        return datetime.fromtimestamp(behaviour.until, UTC) if behaviour.until else None


class SandboxSerializer(serializers.Serializer[object]):
    """A sandbox: its behaviour, and what it got."""

    behaviour = BehaviourSerializer()
    calls = SandboxCallSerializer(many=True, help_text="The newest first")


class SandboxView(QueryView):
    """The sandbox of a subscription whose consumer has the URL https://sandbox.invalid/."""

    tag = "sandbox"
    required_scope = "manage:sandbox"
    answers_not_now = True
    max_body_bytes = _MAX_BYTES
    query = [
        OpenApiParameter("message", str, description="Only requests with this message id"),
        OpenApiParameter("event_type", str, description="Only requests of this event type"),
    ]

    @operation(None, {200: SandboxSerializer})
    def get(self, request: Request, system: str, consumer: str) -> Response:
        """Read a sandbox.

        Shows what the sandbox got in the last hour, at most the newest 100 requests, and how it
        answers now. 409 for a consumer that is no sandbox.
        """
        row = _sandbox_of(system, consumer)
        rows = calls.select(calls.arrivals(row.pk), self.query_values)
        behaviour = own.store(row.pk).behaviour()
        return Response(SandboxSerializer({"behaviour": behaviour, "calls": rows}).data)

    @operation(
        BehaviourBody,
        {200: BehaviourSerializer},
        ("two failures", {"status": 503, "count": 2}),
    )
    def put(self, request: Request, system: str, consumer: str) -> Response:
        """Set how a sandbox answers.

        With a status, after a delay, for some minutes or requests; afterwards it answers 200 at
        once, as usual. `{}` ends every other behaviour. 409 for a consumer that is no sandbox.
        """
        body = decode(request, BehaviourBody, _MAX_BYTES)
        behaviour = behaviour_of(body)
        row = _sandbox_of(system, consumer)
        own.store(row.pk).behave(behaviour, body.minutes)
        audit(request, "sandbox_behaviour", f"{row} #{row.pk}", status=body.status)
        return Response(BehaviourSerializer(own.store(row.pk).behaviour()).data)

    @operation(None, {204: "It is empty."})
    def delete(self, request: Request, system: str, consumer: str) -> Response:
        """Empty a sandbox.

        Drops what the sandbox got; its behaviour stays. 409 for a consumer that is no sandbox.
        """
        own.store(_sandbox_of(system, consumer).pk).empty()
        return Response(status=status.HTTP_204_NO_CONTENT)


def behaviour_of(body: BehaviourBody) -> Behaviour:
    """The behaviour that a body asks for. Raises InvalidInput."""
    _within(body.status, "status", 200, 599)
    _within(body.delay, "delay", 0, MAX_DELAY_SECONDS)
    _within(body.retry_after, "retry_after", 0, _MAX_RETRY_AFTER)
    _within(body.minutes, "minutes", 1, MAX_MINUTES)
    if body.count is not None:
        _within(body.count, "count", 1, MAX_COUNT)
    if (body.status, body.delay, body.retry_after) == (200, 0, 0):
        return sandbox.USUAL
    return Behaviour(str(body.status), body.delay, body.retry_after, count=body.count)


def _within(value: float, name: str, low: float, high: float) -> None:
    if not low <= value <= high:
        raise InvalidInput(f"Use a number from {low:g} to {high:g}.", name)


def _sandbox_of(system: str, consumer: str) -> BizReceive:
    """The subscription of a sandbox. Raises Http404, and NotNow for any other consumer."""
    if not sandbox.is_on():
        raise NotNow(sandbox.OFF)
    row = subscription_of(BizReceive.objects.select_related("biz", "receive"), system, consumer)
    if not own.is_sandbox(row.receive.url):
        raise NotNow(f"This consumer is no sandbox; the URL of one is {own.URL}.")
    return row
