"""The SMS endpoints under /api/v1/, and the JSON shapes of their answers. Every id is a string."""

from typing import Any

import msgspec
from django.http import Http404, HttpResponse
from django.utils.translation import gettext as _
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from gateway.api import requests
from gateway.intake import accept
from gateway.intake.request import LimitReached, Request as SmsRequest
from gateway.messages import incoming, states
from gateway.messages.index import SENT
from gateway.messages.states import State
from gateway.models import SgipMt, SmsAccount
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.messages import Values
from msgplatform.core.intake.verdicts import Verdict
from msgplatform.doors.api.access.authentication import caller_of
from msgplatform.doors.api.intake import (
    BatchView,
    SingleIntake,
    VerdictSerializer,
    answer,
    idempotency_key,
)
from msgplatform.doors.api.json import DEFAULT_MAX_BODY_BYTES, decode
from msgplatform.doors.api.message_list import MessageListView
from msgplatform.doors.api.pagination import SincePagination
from msgplatform.doors.api.problems.handler import describe
from msgplatform.doors.api.problems.problem import KINDS, Problem
from msgplatform.doors.api.query import ListView
from msgplatform.doors.api.schema import operation
from msgplatform.messages.filters import number


class AcceptedSmsSerializer(serializers.Serializer[dict[str, Any]]):
    outcome = serializers.CharField(help_text="`created` or `duplicate`")
    ids = serializers.ListField(
        child=serializers.CharField(), help_text="One for each recipient, in the order of `to`"
    )


class SmsVerdictSerializer(VerdictSerializer):
    """`ids` for created and duplicate; code, field and detail for rejected."""

    id = None  # type: ignore[assignment]  # how DRF leaves out an inherited field
    ids = serializers.ListField(child=serializers.CharField(), required=False)
    code = serializers.ChoiceField(choices=["invalid", "conflict", "limit"], required=False)


class SmsVerdictsSerializer(serializers.Serializer[dict[str, Any]]):
    results = SmsVerdictSerializer(many=True)


class SmsSerializer(serializers.Serializer[State]):
    """The state of one message. A time that has not come is null."""

    id = serializers.CharField()
    state = serializers.ChoiceField(
        choices=["pending", "submitted", "responded", *SgipMt.Final.values]
    )
    to = serializers.CharField()
    text = serializers.CharField()
    account = serializers.CharField(allow_blank=True)
    reference = serializers.CharField(allow_blank=True)
    parts = serializers.IntegerField()
    error_code = serializers.IntegerField(
        help_text="The gateway's Result or the Report's ErrorCode; 0: none, or our own reason"
    )
    error = serializers.CharField(allow_blank=True)
    accepted_at = serializers.DateTimeField()
    schedule_at = serializers.DateTimeField(allow_null=True)
    submitted_at = serializers.DateTimeField(allow_null=True)
    responded_at = serializers.DateTimeField(allow_null=True)
    reported_at = serializers.DateTimeField(
        allow_null=True, help_text="When its last Report came; null when nobody reported"
    )
    archived_at = serializers.DateTimeField(allow_null=True)

    def to_representation(self, state: State) -> Any:
        return msgspec.to_builtins(state)


# The list makes all items at once, because item by item each would cost a query.
class _IncomingListSerializer(serializers.ListSerializer[Any]):
    def to_representation(self, data: Any) -> Any:
        return [msgspec.to_builtins(message) for message in incoming.describe(list(data))]


class IncomingSerializer(serializers.Serializer[Any]):
    """A message from a handset."""

    class Meta:
        list_serializer_class = _IncomingListSerializer

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """A method, because `from` is a keyword of Python."""
        return {
            "id": serializers.CharField(),
            "from": serializers.CharField(help_text="The number of the handset"),
            "to": serializers.CharField(help_text="The SP number that it was sent to"),
            "account": serializers.CharField(allow_blank=True),
            "text": serializers.CharField(allow_blank=True),
            "parts": serializers.IntegerField(),
            "missing_parts": serializers.IntegerField(
                help_text="Of a long message: how many parts never came"
            ),
            "received_at": serializers.DateTimeField(),
        }


class SmsListView(MessageListView):
    """List your messages.

    The messages that you sent and that have ended, newest first. Ask for a message in flight by its
    id. A page looks at 10,000 messages at most: with a filter that few messages match
    it may be short, or empty, and still have a `next`.
    """

    tag = "sms"
    store = SENT
    required_scope = {"GET": "sms:read", "POST": "sms:write"}
    accepts_idempotency_key = True
    serializer_class = SmsSerializer
    max_body_bytes = DEFAULT_MAX_BODY_BYTES

    def values(self, biz: int) -> Values:
        """The account of another system is refused as if it did not exist."""
        values = super().values(biz)
        if "account" in values:
            rows = SmsAccount.objects.filter(pk=values["account"], biz_id=biz)
            if not rows.exists():
                raise InvalidInput(_("there is no account of this name"), "account")
        return values

    @operation(
        requests.Send,
        {
            202: (AcceptedSmsSerializer, "Accepted and durable."),
            200: (AcceptedSmsSerializer, "A repeat: it was accepted before."),
        },
        (
            "to two recipients",
            {
                "to": ["13800000000", "13900000000"],
                "text": "您的验证码是 482913",
                "reference": "login-7",
                "idempotency_key": "login-7-code",
            },
        ),
    )
    def post(self, request: Request) -> HttpResponse:
        """Send a text.

        Send a text to one recipient or to several. The answer comes when the messages are safe,
        with an id for each recipient. Send an idempotency key, so that a request whose answer was
        lost can be repeated. Beyond the account's daily limit the answer is 429, and `Retry-After`
        has the seconds until midnight in the platform's zone.
        """
        body = decode(request, requests.Send)
        body.idempotency_key = idempotency_key(request, body.idempotency_key)
        return answer(accept.accept_one(requests.request(caller_of(request).biz_id, body)))


@describe.register
def describe_limit(exc: LimitReached, view: Any) -> Problem:
    """The limit is a fault of one item in a batch; the caller of a single text has to wait."""
    detail = f"{exc}: repeat after {exc.wait} s."
    return Problem(KINDS["throttled"], detail, {"Retry-After": str(exc.wait)})


# A POST of one text is taken in before Django is asked: see `SingleIntake`.
SEND = SingleIntake(
    "/api/v1/sms",
    requests.Send,
    lambda biz, body, call: accept.accept_later(requests.request(biz, body), call),
)


class SmsBatchView(BatchView):
    """Send many texts.

    Send up to 1000 texts in one request. A wrong text does not keep the others from being accepted:
    the answer says of each, in order, what became of it. The `code` `limit` stands for one beyond
    the account's daily limit.
    """

    tag = "sms"
    required_scope = "sms:write"
    body = requests.SendBatchBody
    results = SmsVerdictsSerializer, "What became of each; everything created is durable."

    def read(self, body: requests.Send) -> SmsRequest:
        return requests.request(caller_of(self.request).biz_id, body)

    def accept(self, items: list[SmsRequest]) -> list[Verdict]:
        return accept.accept_many(items)


class IncomingListView(ListView):
    """List incoming messages.

    Messages from handsets to your numbers (MOs), in the order in which they came, from the oldest
    on. To follow them, ask with `since_id`, the id of the last one that you have seen: what came
    after it is listed, and none is left out. Ids of long messages are not always in that order. A
    message is listed within half a minute.
    """

    tag = "sms"
    required_scope = "sms:read"
    serializer_class = IncomingSerializer
    pagination_class = SincePagination
    keyset_ordering = incoming.ORDER

    def get_queryset(self) -> Any:
        since = self.query_values.get("since_id")
        last = number(since, "since_id") if since else None
        return incoming.since(caller_of(self.request).biz_id, last)


class SmsView(APIView):
    """One message."""

    tag = "sms"
    required_scope = "sms:read"

    @operation(None, {200: SmsSerializer})
    def get(self, request: Request, pk: int) -> Response:
        """Show a message.

        What became of one message: its state, with the time of each step.
        """
        states_by_id = states.states(caller_of(request).biz_id, [str(pk)])
        if not states_by_id:
            raise Http404
        return Response(SmsSerializer(states_by_id[str(pk)]).data)
