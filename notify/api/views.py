"""Notify's REST endpoints under /api/v1/."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import msgspec
from django.http import Http404, HttpResponse
from drf_spectacular.utils import OpenApiParameter
from rest_framework.generics import RetrieveAPIView
from rest_framework.request import Request

from msgplatform.core.errors import InvalidInput, NotNow
from msgplatform.core.flows.messages import Values
from msgplatform.core.intake.verdicts import Verdict
from msgplatform.core.tracing import context
from msgplatform.doors.api.access.authentication import caller_of
from msgplatform.doors.api.bodies import IdempotencyKey, field, items, text
from msgplatform.doors.api.intake import (
    AcceptedSerializer,
    BatchView,
    SingleIntake,
    VerdictsSerializer,
    answer,
    idempotency_key,
)
from msgplatform.doors.api.json import decode
from msgplatform.doors.api.message_list import MessageListView
from msgplatform.doors.api.query import NAME, QueryView
from msgplatform.doors.api.schema import operation
from msgplatform.messages import filters
from notify.api import cloud_events
from notify.api.serializers import MessageDetailSerializer, MessageSerializer
from notify.intake import catalogue, intake
from notify.messages import records
from notify.messages.index import MESSAGES
from notify.models import BizMsg, BizReceive
from notify.subscriptions import limits
from notify.subscriptions.matching import EVENT_TYPE_PATTERN

# The bound of a payload, and bytes for the envelope around the payload.
MAX_MESSAGE_BYTES = limits.MAX_PAYLOAD_BYTES + 4096
_CONSUMER = OpenApiParameter(
    "consumer", NAME, description="Only events with a delivery for this consumer, by its name"
)


class PublishBody(msgspec.Struct, forbid_unknown_fields=True):
    """An event to be published. null means the same as leaving a field out."""

    event_type: Annotated[
        str,
        text(
            "Letters, digits and _ - : / in parts joined by dots: order.paid",
            128,
            EVENT_TYPE_PATTERN,
        ),
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
    traceparent: Annotated[
        str | None,
        text("The event's own W3C Trace Context, before the header's; a malformed one is ignored"),
    ] = None


class PublishBatchBody(msgspec.Struct, forbid_unknown_fields=True):
    """Events to be published."""

    messages: Annotated[list[PublishBody], items("1 to 1000 events, 16 MiB in all")]


class EventListView(MessageListView):
    """List your events.

    The events that you published, newest first, each with its deliveries. Archived events are
    listed too. A page may have fewer events than `limit`, or none, and have a next one: follow
    `next`.
    """

    tag = "events"
    required_scope = {"GET": "events:read", "POST": "events:write"}
    accepts_idempotency_key = True
    serializer_class = MessageSerializer
    max_body_bytes = MAX_MESSAGE_BYTES
    store = MESSAGES

    @property
    def query(self) -> Sequence[OpenApiParameter]:  # type: ignore[override]
        return [*super().query, _CONSUMER]

    def values(self, biz: int) -> Values:
        entered_values = self.query_values
        # A wrong event type would find nothing; the caller should learn the reason.
        if "event_type" in entered_values:
            intake.check_event_type(entered_values["event_type"])
        # An id is required: by names a caller could find out other systems' subscriptions.
        if "subscription" in entered_values:
            filters.number(entered_values["subscription"], "subscription")
        values = dict(super().values(biz))
        if "consumer" in entered_values:
            rows = BizReceive.objects.filter(biz_id=biz, receive__name=entered_values["consumer"])
            subscription = rows.values_list("id", flat=True).first()
            if subscription is None or values.get("subscription", subscription) != subscription:
                raise InvalidInput("You have no such subscription to this consumer.", "consumer")
            values["subscription"] = subscription
        return values

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

        A CloudEvent (version 1.0, structured as `application/cloudevents+json` or binary with
        headers `ce-…`) is read too: its `type` is the event type, its `data` the payload, an
        extension `channel` the channel, and its `source` and `id` together are the idempotency key;
        an extension `traceparent` goes before the header.

        The trace of the header `traceparent` (W3C Trace Context) goes on to the consumers of an
        event that is traced.
        """
        if cloud_events.is_cloud_event(request):
            event = cloud_events.read(request, MAX_MESSAGE_BYTES)
            key = idempotency_key(request, None) or cloud_events.key_of(event)
            body = PublishBody(event.type, event.data, event.channel, key, event.traceparent)
        else:
            body = decode(request, PublishBody, MAX_MESSAGE_BYTES)
            body.idempotency_key = idempotency_key(request, body.idempotency_key)
        item = _read_event(caller_of(request).biz_id, body)
        return answer(item if isinstance(item, Verdict) else intake.publish(item))


class MessageBatchView(BatchView):
    """Publish many events.

    Publish up to 1000 events in one request. A wrong event does not keep the others from being
    accepted: the answer says of each, in order, what became of it.
    """

    tag = "events"
    required_scope = "events:write"
    body = PublishBatchBody
    results = VerdictsSerializer, "What became of each event; everything created is durable."

    def read(self, body: PublishBody) -> intake.Event | Verdict:
        return _read_event(caller_of(self.request).biz_id, body)

    def accept(self, items: list[intake.Event | Verdict]) -> list[Verdict]:
        events = [item for item in items if isinstance(item, intake.Event)]
        verdicts = iter(intake.publish_many(events) if events else ())
        return [item if isinstance(item, Verdict) else next(verdicts) for item in items]


def _read_event(biz: int, body: PublishBody) -> intake.Event | Verdict:
    """The event of a body. The verdict on an event that does not match its schema: a duplicate if
    the event was accepted before the schema was changed. Raises InvalidInput for other events."""
    event = _event(biz, body)
    try:
        catalogue.check(biz, body.event_type, body.payload)
    except InvalidInput:
        verdict = intake.stored_before(event)
        if verdict is None:
            raise
        return verdict
    return event


def _publish_later(
    biz: int, body: PublishBody, call: Callable[[Verdict | None, Exception | None], None]
) -> None:
    """Publish from the fast intake. It runs in the event loop, so it uses no database: an event
    whose schema must be read, or that may not match, goes to Django."""
    if not catalogue.passes_at_once(biz, body.event_type, body.payload):
        raise NotNow("its schema must be looked at")
    intake.publish_later(_event(biz, body), call)


def _event(biz: int, body: PublishBody) -> intake.Event:
    return intake.Event(
        biz,
        body.event_type,
        bytes(body.payload),
        body.idempotency_key,
        body.channel or "",
        context.begin(body.traceparent),
    )


# The plain publish, which the web server answers without Django (`doors/web/fast_intake.py`).
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
    queryset = BizMsg.objects.none()  # for the schema
    query = [
        OpenApiParameter(
            "expand", str, enum=["payload"], description="payload: with the whole payload"
        )
    ]

    def get_object(self) -> Any:
        biz = caller_of(self.request).biz_id
        message = records.record(biz, self.kwargs["pk"], "expand" in self.query_values)
        if message is None:
            raise Http404
        return message
