"""Notify's REST endpoints under /api/v1/."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from django.http import HttpResponse
from drf_spectacular.utils import OpenApiParameter
from rest_framework.generics import RetrieveAPIView
from rest_framework.request import Request

from msgplatform.api.access.authentication import caller_of
from msgplatform.api.bodies import IdempotencyKey, field, items, text
from msgplatform.api.intake import (
    AcceptedSerializer,
    BatchView,
    SingleIntake,
    VerdictsSerializer,
    answer,
    idempotency_key,
)
from msgplatform.api.json import decode
from msgplatform.api.query import SINCE, UNTIL, ListView, QueryView, accepted_between
from msgplatform.api.schema import operation
from msgplatform.core.errors import InvalidInput, NotNow
from msgplatform.core.intake.verdicts import Verdict
from notify.api.serializers import (
    EVENT_TYPE,
    MessageDetailSerializer,
    MessageSerializer,
)
from notify.archive import listing
from notify.intake import catalogue, intake
from notify.models import BizMsg
from notify.subscriptions import limits

# The bound of a payload, and the envelope around it.
MAX_MESSAGE_BYTES = limits.MAX_PAYLOAD_BYTES + 4096


class PublishBody(msgspec.Struct, forbid_unknown_fields=True):
    """An event to be published. null means the same as leaving a field out."""

    event_type: Annotated[
        str, text("Letters, digits and _ in parts joined by dots: order.paid", 128, EVENT_TYPE)
    ]
    # Exactly the bytes that were sent.
    payload: Annotated[
        msgspec.Raw, field("Any JSON, at most 256 KiB; delivered byte for byte as `data`")
    ]
    channel: Annotated[
        str | None,
        text(
            "A subdivision of your events, such as a shop or a region; empty when left out",
            64,
            r"^[A-Za-z0-9_.:-]*$",
        ),
    ] = None
    idempotency_key: IdempotencyKey = None


class PublishBatchBody(msgspec.Struct, forbid_unknown_fields=True):
    """Events to be published."""

    messages: Annotated[list[PublishBody], items("1 to 1000 events, 16 MiB in all")]


class MessageListView(ListView):
    """List your events.

    The events that you published, newest first, each with its deliveries. Archived events are
    listed too. A page may have fewer events than `limit` when they have very many deliveries:
    follow `next`.
    """

    tag = "events"
    required_scope = {"GET": "events:read", "POST": "events:write"}
    accepts_idempotency_key = True
    serializer_class = MessageSerializer
    max_body_bytes = MAX_MESSAGE_BYTES
    query = [
        OpenApiParameter(
            "event_type",
            {"type": "string", "pattern": EVENT_TYPE, "maxLength": 128},
            description="Only events of exactly this type",
        ),
        SINCE,
        UNTIL,
    ]

    def get_queryset(self) -> Any:
        event_type = self.query_values.get("event_type", "")
        # A wrong one would find nothing; its sender should learn why.
        if event_type:
            intake.check_event_type(event_type)
        rows = listing.Messages(caller_of(self.request).biz_id, event_type)
        return rows.filter(accepted_between(self.query_values))

    @operation(
        PublishBody,
        {
            202: (AcceptedSerializer, "Accepted and durable."),
            200: (AcceptedSerializer, "A repeat: this event was accepted before."),
        },
        (
            "order paid",
            {
                "event_type": "order.paid",
                "payload": {"order": "20261120-7", "amount": "99.00"},
                "idempotency_key": "order-20261120-7-paid",
            },
        ),
    )
    def post(self, request: Request) -> HttpResponse:
        """Publish an event.

        The event is delivered to every subscription to its type. The answer comes when the event is
        safe. To be able to repeat a request whose answer was lost, send an idempotency key. For a
        business system that validates its events, the payload must match the JSON Schema of its
        event type.
        """
        body = decode(request, PublishBody, MAX_MESSAGE_BYTES)
        body.idempotency_key = idempotency_key(request, body.idempotency_key)
        biz = caller_of(request).biz_id
        try:
            catalogue.check(biz, body.event_type, body.payload)
        except InvalidInput as error:
            return answer(_verdict_of_repeat(_event(biz, body), error))
        return answer(intake.publish(_event(biz, body)))


class MessageBatchView(BatchView):
    """Publish many events.

    Publish up to 1000 events in one request. A wrong event does not keep the others from being
    accepted: the answer says of each, in order, what became of it.
    """

    tag = "events"
    required_scope = "events:write"
    body = PublishBatchBody
    answer = VerdictsSerializer, "What became of each event; everything created is durable."

    def read(self, body: PublishBody) -> intake.Event | Verdict:
        biz = caller_of(self.request).biz_id
        try:
            catalogue.check(biz, body.event_type, body.payload)
        except InvalidInput as error:
            return _verdict_of_repeat(_event(biz, body), error)
        return _event(biz, body)

    def accept(self, items: list[intake.Event | Verdict]) -> list[Verdict]:
        events = [item for item in items if isinstance(item, intake.Event)]
        verdicts = iter(intake.publish_many(events) if events else ())
        return [item if isinstance(item, Verdict) else next(verdicts) for item in items]


def _verdict_of_repeat(event: intake.Event, error: InvalidInput) -> Verdict:
    """The verdict on an event that does not match its schema: it is a duplicate when it was
    accepted before the schema was changed. Raises the error for any other."""
    verdict = intake.stored_before(event)
    if verdict is None:
        raise error
    return verdict


def _publish_later(
    biz: int, body: PublishBody, call: Callable[[Verdict | None, Exception | None], None]
) -> None:
    """Publish from the fast intake. It runs in the event loop, so it asks no database: an event
    that may have to match a schema goes to Django."""
    if not catalogue.passes_without_query(biz):
        raise NotNow("a schema may have to be looked at")
    intake.publish_later(_event(biz, body), call)


def _event(biz: int, body: PublishBody) -> intake.Event:
    return intake.Event(
        biz,
        body.event_type,
        bytes(body.payload),
        body.idempotency_key,
        body.channel or "",
    )


# The plain publish, which the web server answers without Django (`msgplatform/web/fast_intake.py`).
PUBLISH = SingleIntake("/api/v1/messages", PublishBody, _publish_later)


class MessageView(QueryView, RetrieveAPIView[BizMsg]):
    """Show an event.

    One event with its deliveries and their attempts, archived or not. Of more than 500 attempts the
    latest of each delivery are listed, as many of each and at least one. With `expand=payload` the
    answer holds the whole payload too.
    """

    tag = "events"
    required_scope = "events:read"
    serializer_class = MessageDetailSerializer
    query = [
        OpenApiParameter(
            "expand", str, enum=["payload"], description="payload: with the whole payload"
        )
    ]

    def get_queryset(self) -> Any:
        biz = caller_of(self.request).biz_id
        with_payload = "expand" in self.query_values
        return listing.Messages(biz, attempts=True, payload=with_payload)
