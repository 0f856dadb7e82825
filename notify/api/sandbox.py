"""A consumer's sandbox over the management API, for the tests of developers of consumers."""

from typing import Annotated

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from msgplatform.core import sandbox
from msgplatform.core.errors import InvalidInput, NotNow
from msgplatform.core.sandbox import MAX_BODY_BYTES, Behaviour
from msgplatform.doors.api.bodies import field
from msgplatform.doors.api.json import decode
from msgplatform.doors.api.management.resources import audit
from msgplatform.doors.api.management.sandbox import MAX_BYTES, AnswerBody, AnswerSerializer
from msgplatform.doors.api.query import QueryView
from msgplatform.doors.api.schema import operation
from notify import sandbox_receiver
from notify.api.subscriptions import subscription_of
from notify.models import BizReceive
from notify.sandbox_receiver import MAX_STATUS, USUAL_STATUS, Arrival, status_of
from notify.subscriptions.sandbox import URL, is_sandbox


class BehaviourBody(AnswerBody, kw_only=True):
    """How the sandbox answers from now on; {} is the usual answer: 200, at once. A delay that is
    longer than the subscription's timeout is no answer."""

    status: Annotated[
        int | None, field("The HTTP status; 503 is a proxy's answer for a consumer that is down",
                          minimum=200, maximum=599)
    ] = None  # fmt: skip


class SandboxCallSerializer(serializers.Serializer[Arrival]):
    """A request that the sandbox got."""

    at = serializers.DateTimeField(help_text="When it came")
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
        choices=list(sandbox_receiver.VERDICTS),
        source="call.signature",
        help_text="Why: the secret that fits, or what is wrong",
    )
    status = serializers.IntegerField(source="call.status", help_text="What was answered")
    delay = serializers.FloatField(source="call.delay", help_text="Seconds before the answer")

    def get_event_type(self, row: Arrival) -> str:
        return sandbox_receiver.event_type(row.call)


class BehaviourSerializer(AnswerSerializer):
    """How it answers now."""

    status = serializers.SerializerMethodField()

    def get_status(self, behaviour: Behaviour) -> int:
        return status_of(behaviour)


class SandboxSerializer(serializers.Serializer[object]):
    """A sandbox: its behaviour, and what it got."""

    behaviour = BehaviourSerializer()
    calls = SandboxCallSerializer(many=True, help_text="The newest first")


class SandboxView(QueryView):
    """The sandbox of a subscription whose consumer has the URL https://sandbox.invalid/."""

    tag = "sandbox"
    required_scope = "manage:sandbox"
    answers_not_now = ("GET", "PUT", "DELETE")
    answers_limited_keys = True
    max_body_bytes = MAX_BYTES
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
        row = _sandbox_of(request, system, consumer)
        calls = sandbox_receiver.select(sandbox_receiver.arrivals(row.pk), self.query_values)
        behaviour = sandbox_receiver.store(row.pk).behaviour()
        return Response(SandboxSerializer({"behaviour": behaviour, "calls": calls}).data)

    @operation(
        BehaviourBody, {200: BehaviourSerializer}, ("two failures", {"status": 503, "count": 2})
    )
    def put(self, request: Request, system: str, consumer: str) -> Response:
        """Set how a sandbox answers.

        With a status, after a delay, for some minutes or requests; afterwards it answers 200 at
        once, as usual. `{}` ends every other behaviour. 409 for a consumer that is no sandbox.
        """
        body = decode(request, BehaviourBody, MAX_BYTES)
        status_code = body.status or USUAL_STATUS
        if not USUAL_STATUS <= status_code <= MAX_STATUS:
            raise InvalidInput(f"Use a status from {USUAL_STATUS} to {MAX_STATUS}.", "status")
        behaviour = body.behaviour("" if status_code == USUAL_STATUS else str(status_code))
        row = _sandbox_of(request, system, consumer)
        store = sandbox_receiver.store(row.pk)
        store.behave(behaviour, body.minutes_or_all)
        audit(request, "sandbox_behaviour", f"{row} #{row.pk}", status=status_of(behaviour))
        return Response(BehaviourSerializer(store.behaviour()).data)

    @operation(None, {204: "It is empty."})
    def delete(self, request: Request, system: str, consumer: str) -> Response:
        """Empty a sandbox.

        Drops what the sandbox got; its behaviour stays. 409 for a consumer that is no sandbox.
        """
        row = _sandbox_of(request, system, consumer)
        sandbox_receiver.store(row.pk).empty()
        audit(request, "sandbox_emptied", f"{row} #{row.pk}")
        return Response(status=status.HTTP_204_NO_CONTENT)


def _sandbox_of(request: Request, system: str, consumer: str) -> BizReceive:
    """The subscription of a sandbox. Raises Http404, and NotNow for any other consumer."""
    if not sandbox.is_on():
        raise NotNow(sandbox.OFF)
    row = subscription_of(request, system, consumer)
    if not is_sandbox(row.receive.url):
        raise NotNow(f"This consumer is no sandbox; the URL of one is {URL}.")
    return row
