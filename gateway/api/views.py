"""The SMS endpoints under /api/v1/."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from django.http import Http404, HttpResponse
from django.utils.dateparse import parse_datetime
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import (
    OpenApiExample,
    OpenApiParameter,
    OpenApiResponse,
    extend_schema,
    extend_schema_view,
)
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from gateway import sgip
from gateway.api import requests
from gateway.api.serializers import (
    AcceptedSmsSerializer,
    SendBatchSerializer,
    SendSerializer,
    SmsSerializer,
    SmsVerdictsSerializer,
)
from gateway.intake.request import Request as SmsRequest
from gateway.models import SgipMt, SmsAccount
from gateway.search import states
from msgplatform.api.access.authentication import caller_of
from msgplatform.api.intake import BatchView, SingleIntake, answer, idempotency_key
from msgplatform.api.json import DEFAULT_MAX_BODY_BYTES, decode
from msgplatform.core.data import ids
from msgplatform.core.errors import InvalidInput
from msgplatform.core.verdicts import Verdict

_FINALS = frozenset(SgipMt.Final.values)
_FILTERS = ("number", "state", "account", "since", "until")


@extend_schema(tags=["sms"])
class SmsListView(ListAPIView[SgipMt]):
    """Send a text, or list what was sent and is finished, newest first."""

    required_scope = {"GET": "sms:read", "POST": "sms:write"}
    accepts_idempotency_key = True
    serializer_class = SmsSerializer
    max_body_bytes = DEFAULT_MAX_BODY_BYTES

    def get_queryset(self) -> Any:
        rows = SgipMt.objects.filter(biz_id=caller_of(self.request).biz_id)
        asked = {name: self.request.query_params.get(name, "") for name in _FILTERS}
        if asked["number"]:
            rows = rows.filter(user_number=sgip.international(asked["number"]))
        if asked["account"]:
            rows = rows.filter(account_id=_account(self.request, asked["account"]))
        if asked["state"]:
            if asked["state"] not in _FINALS:
                raise InvalidInput(f"Use one of {', '.join(SgipMt.Final.values)}.", "state")
            rows = rows.filter(final=asked["state"])
        if asked["since"]:
            rows = rows.filter(id__gte=ids.first_id_at(_moment(asked["since"], "since")))
        if asked["until"]:
            rows = rows.filter(id__lt=ids.first_id_at(_moment(asked["until"], "until")))
        return rows

    @extend_schema(
        parameters=[
            OpenApiParameter("number", str, description="The recipient"),
            OpenApiParameter("account", str, description="An account's name"),
            OpenApiParameter("state", str, enum=SgipMt.Final.values),
            OpenApiParameter("since", OpenApiTypes.DATETIME, description="Accepted then or later"),
            OpenApiParameter("until", OpenApiTypes.DATETIME, description="Accepted before"),
        ]
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)

    @extend_schema(
        request=SendSerializer,
        responses={
            202: OpenApiResponse(AcceptedSmsSerializer, "Accepted and durable."),
            200: OpenApiResponse(AcceptedSmsSerializer, "A repeat: it was accepted before."),
        },
        examples=[
            OpenApiExample(
                "to two recipients",
                {
                    "to": ["13800000000", "13900000000"],
                    "text": "您的验证码是 482913",
                    "reference": "login-7",
                    "idempotency_key": "login-7-code",
                },
                request_only=True,
            )
        ],
    )
    def post(self, request: Request) -> HttpResponse:
        body = decode(request, requests.Send)
        body.idempotency_key = idempotency_key(request, body.idempotency_key)
        (verdict,) = requests.accept([requests.request(caller_of(request).biz_id, body)])
        return answer(verdict)


SEND = SingleIntake("/api/v1/sms", requests.Send, requests.accept_later)


@extend_schema(tags=["sms"])
@extend_schema_view(
    post=extend_schema(
        request=SendBatchSerializer,
        responses={
            200: OpenApiResponse(
                SmsVerdictsSerializer, "What became of each; everything created is durable."
            )
        },
    )
)
class SmsBatchView(BatchView):
    """Send up to 1000 texts in one request; the answer has a verdict for each, in order."""

    required_scope = "sms:write"
    item = requests.Send

    def read(self, body: requests.Send) -> SmsRequest:
        return requests.request(caller_of(self.request).biz_id, body)

    def accept(self, items: list[SmsRequest]) -> list[Verdict]:
        return requests.accept_many(items)


@extend_schema(tags=["sms"])
class SmsView(APIView):
    """What became of one message: its state, with the time of each step."""

    required_scope = "sms:read"

    @extend_schema(responses=SmsSerializer)
    def get(self, request: Request, pk: int) -> Response:
        found = states.states(caller_of(request).biz_id, [str(pk)])
        if not found:
            raise Http404
        return Response(msgspec.to_builtins(found[str(pk)]))


def _account(request: Request, name: str) -> int:
    rows = SmsAccount.objects.filter(biz_id=caller_of(request).biz_id, name=name)
    found = rows.values_list("pk", flat=True).first()
    if found is None:
        raise InvalidInput(f"There is no account {name!r}.", "account")
    return int(found)


def _moment(text: str, field: str) -> datetime:
    """An aware time. Raises InvalidInput."""
    try:
        # `+` of a zone arrives as a space when the caller did not quote it.
        moment = parse_datetime(text.replace(" ", "+") if "T" in text else text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidInput("Write it as 2026-11-20T08:00:00Z.", field)
    return moment
