"""Notify's REST endpoints under /api/v1/."""

from __future__ import annotations

from typing import Any, cast

import msgspec
from django.http import HttpResponse
from drf_spectacular.utils import OpenApiExample, OpenApiResponse, extend_schema
from rest_framework import status
from rest_framework.generics import ListAPIView, RetrieveAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from msgplatform.api import later
from msgplatform.api.authentication import ApiCaller
from msgplatform.api.json import MEDIA_TYPE, decode, decode_item
from msgplatform.core.errors import Conflict, InvalidInput
from notify import intake
from notify.api.serializers import (
    AcceptedSerializer,
    MessageDetailSerializer,
    MessageSerializer,
    PublishBatchSerializer,
    PublishSerializer,
    VerdictsSerializer,
)
from notify.archive import listing

# The payload's bound plus the envelope around it.
MAX_MESSAGE_BYTES = intake.MAX_PAYLOAD_BYTES + 4096
MAX_BATCH = 1000
MAX_BATCH_BYTES = 16 * 1024 * 1024


class PublishBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a publish request; `payload` stays the exact bytes that were sent."""

    event_type: str
    payload: msgspec.Raw
    channel: str = ""
    idempotency_key: str | None = None


class MessageListView(ListAPIView):
    """Publish an event, or list the events that this business system published, newest first."""

    required_scope = {"GET": "events:read", "POST": "events:write"}
    accepts_idempotency_key = True
    serializer_class = MessageSerializer
    max_body_bytes = MAX_MESSAGE_BYTES

    def get_queryset(self) -> Any:
        return listing.Messages(_caller(self.request).biz_id)

    @extend_schema(
        request=PublishSerializer,
        responses={
            202: OpenApiResponse(AcceptedSerializer, "Accepted and durable."),
            200: OpenApiResponse(AcceptedSerializer, "A repeat: this event was accepted before."),
        },
        examples=[
            OpenApiExample(
                "order paid",
                {
                    "event_type": "order.paid",
                    "payload": {"order": "20261120-7", "amount": "99.00"},
                    "idempotency_key": "order-20261120-7-paid",
                },
                request_only=True,
            )
        ],
    )
    def post(self, request: Request) -> HttpResponse:
        event = _event(request)
        if not later.possible(request):
            return _answer(intake.publish(event))
        response = later.Later(request._request, _answer)
        intake.publish_later(event, response.settle)
        return response


def _answer(verdict: intake.Verdict) -> HttpResponse:
    """202 for a new event, 200 for a repeat. Raises Conflict."""
    if verdict.code == "conflict":
        raise Conflict(verdict.reason)
    created = verdict.outcome == "created"
    return HttpResponse(
        msgspec.json.encode({"id": str(verdict.id), "outcome": verdict.outcome}),
        content_type=MEDIA_TYPE,
        status=status.HTTP_202_ACCEPTED if created else status.HTTP_200_OK,
    )


class BatchBody(msgspec.Struct, forbid_unknown_fields=True):
    """Items are decoded one by one: a wrong one must not refuse its neighbours."""

    messages: list[msgspec.Raw]


class MessageBatchView(APIView):
    """Publish up to 1000 events in one request; the answer has a verdict for each, in order."""

    required_scope = "events:write"
    max_body_bytes = MAX_BATCH_BYTES

    @extend_schema(
        request=PublishBatchSerializer,
        responses={
            200: OpenApiResponse(
                VerdictsSerializer, "What became of each event; everything created is durable."
            )
        },
    )
    def post(self, request: Request) -> Response:
        items = decode(request, BatchBody, MAX_BATCH_BYTES).messages
        if not 1 <= len(items) <= MAX_BATCH:
            raise InvalidInput(f"Send 1 to {MAX_BATCH} messages in one request.", "messages")
        biz_id = _caller(request).biz_id
        verdicts: list[dict[str, str]] = []
        events: list[intake.Event] = []
        places: list[int] = []
        for place, item in enumerate(items):
            try:
                events.append(_from_body(biz_id, decode_item(item, PublishBody)))
            except InvalidInput as error:
                verdicts.append(_rejected(error))
            else:
                places.append(place)
                verdicts.append({})
        for place, verdict in zip(places, intake.publish_many(events), strict=True):
            verdicts[place] = _shown(verdict)
        return Response({"results": verdicts})


def _shown(verdict: intake.Verdict) -> dict[str, str]:
    if verdict.outcome == "rejected":
        return {
            "outcome": "rejected",
            "code": verdict.code,
            "field": verdict.field,
            "detail": verdict.reason,
        }
    return {"outcome": verdict.outcome, "id": str(verdict.id)}


def _rejected(error: InvalidInput) -> dict[str, str]:
    return {
        "outcome": "rejected",
        "code": "invalid",
        "field": error.field,
        "detail": str(error),
    }


def _caller(request: Request) -> ApiCaller:
    """Who calls; DRF types `user` as a Django user, ours is the API key's."""
    return cast(ApiCaller, request.user)


def _event(request: Request) -> intake.Event:
    body = decode(request, PublishBody, MAX_MESSAGE_BYTES)
    header = request._request.META.get("HTTP_IDEMPOTENCY_KEY")
    if header is not None and body.idempotency_key not in (None, header):
        raise InvalidInput(
            "the header Idempotency-Key and the body's idempotency_key differ; send one of them",
            "idempotency_key",
        )
    if header is not None:
        body.idempotency_key = header
    return _from_body(_caller(request).biz_id, body)


def _from_body(biz_id: int, body: PublishBody) -> intake.Event:
    return intake.Event(
        biz_id, body.event_type, bytes(body.payload), body.idempotency_key, body.channel
    )


class MessageView(RetrieveAPIView):
    """One event with what became of each of its copies."""

    required_scope = "events:read"
    serializer_class = MessageDetailSerializer

    def get_queryset(self) -> Any:
        return listing.Messages(_caller(self.request).biz_id, attempts=True)
