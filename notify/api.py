"""Notify's REST endpoints under /api/v1/."""

from __future__ import annotations

from typing import Any, cast

import msgspec
from drf_spectacular.utils import OpenApiExample, OpenApiResponse, extend_schema
from rest_framework import status
from rest_framework.generics import ListAPIView, RetrieveAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from msgplatform.api.authentication import ApiCaller
from msgplatform.api.json import decode
from msgplatform.core.errors import Conflict, InvalidInput
from notify import intake
from notify.models import BizMsg
from notify.serializers import AcceptedSerializer, MessageSerializer, PublishSerializer

# The payload's bound plus the envelope around it.
MAX_MESSAGE_BYTES = intake.MAX_PAYLOAD_BYTES + 4096


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
        return BizMsg.objects.filter(biz_id=_caller(self.request).biz_id).prefetch_related("copies")

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
    def post(self, request: Request) -> Response:
        verdict = intake.publish(_event(request))
        if verdict.code == "conflict":
            raise Conflict(verdict.reason)
        created = verdict.outcome == "created"
        return Response(
            {"id": str(verdict.id), "outcome": verdict.outcome},
            status=status.HTTP_202_ACCEPTED if created else status.HTTP_200_OK,
        )


def _caller(request: Request) -> ApiCaller:
    """Who calls; DRF types `user` as a Django user, ours is the API key's."""
    return cast(ApiCaller, request.user)


def _event(request: Request) -> intake.Event:
    body = decode(request, PublishBody, MAX_MESSAGE_BYTES)
    header = request.headers.get("Idempotency-Key")
    if header is not None and body.idempotency_key not in (None, header):
        raise InvalidInput(
            "the header Idempotency-Key and the body's idempotency_key differ; send one of them",
            "idempotency_key",
        )
    return intake.Event(
        biz=_caller(request).biz_id,
        event_type=body.event_type,
        payload=bytes(body.payload),
        idempotency_key=header if header is not None else body.idempotency_key,
        channel=body.channel,
    )


class MessageView(RetrieveAPIView):
    """One event with what became of each of its copies."""

    required_scope = "events:read"
    serializer_class = MessageSerializer

    def get_queryset(self) -> Any:
        return BizMsg.objects.filter(biz_id=_caller(self.request).biz_id).prefetch_related("copies")
