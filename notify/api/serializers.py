"""JSON shapes of answers. Every id is a string: JavaScript rounds beyond 2^53."""

from typing import Any

import msgspec
from django.db import models
from rest_framework import serializers
from rest_framework.fields import SkipField

from notify.messages.filtered import FilteredOut
from notify.models import Attempt, BizMsg, ReceiveMsg


class NameField(serializers.ChoiceField):
    """The name of a choice, in lower case."""

    def __init__(self, of: type[models.IntegerChoices], **options: Any) -> None:
        super().__init__([choice.name.lower() for choice in of], read_only=True, **options)
        self._of = of

    def to_representation(self, value: Any) -> str:
        return self._of(value).name.lower()


class DeliverySerializer(serializers.ModelSerializer[ReceiveMsg]):
    id = serializers.CharField(read_only=True)
    subscription = serializers.CharField(source="biz_receive_id", read_only=True)
    consumer = serializers.CharField(
        source="listed_consumer",
        read_only=True,
        allow_null=True,
        help_text="The name of the subscription's consumer; null when it was deleted",
    )
    status = NameField(
        ReceiveMsg.Status,
        help_text="pending, queued and held wait. delivered is final, and so are exhausted (all "
        "attempts failed), poison (it could not be sent) and skipped (not wanted any more), until "
        "an operator sends them again.",
    )
    next_at = serializers.DateTimeField(
        source="next_attempt_at",
        read_only=True,
        allow_null=True,
        help_text="When it is tried again; null when no attempt is waiting for its time",
    )

    class Meta:
        model = ReceiveMsg
        fields = ["id", "subscription", "consumer", "status", "send_times", "http_status", "error",
                  "next_at", "updated_at"]  # fmt: skip


class MessageSerializer(serializers.ModelSerializer[BizMsg]):
    id = serializers.CharField(read_only=True)
    state = NameField(
        BizMsg.State,
        help_text="accepted: its deliveries are not made yet. distributed: they are below, none "
        "when nobody subscribes to it.",
    )
    deliveries = DeliverySerializer(source="listed_deliveries", many=True, read_only=True)

    class Meta:
        model = BizMsg
        fields = ["id", "event_type", "channel", "state", "created_at", "deliveries"]


class AttemptSerializer(serializers.ModelSerializer[Attempt]):
    class Meta:
        model = Attempt
        fields = ["number", "at", "seconds", "http_status", "error", "detail",
                  "response_headers", "response_body"]  # fmt: skip


class TriedDeliverySerializer(DeliverySerializer):
    attempts = AttemptSerializer(source="listed_attempts", many=True, read_only=True)

    class Meta(DeliverySerializer.Meta):
        fields = [*DeliverySerializer.Meta.fields, "attempts"]


class PayloadField(serializers.JSONField):
    """The bytes as they were published; left out when they were not read."""

    def get_attribute(self, message: Any) -> Any:
        # Reading a deferred payload would be a query for each message of a list.
        if "payload" in message.get_deferred_fields():
            raise SkipField
        return message.payload

    def to_representation(self, value: Any) -> Any:
        # Pass the bytes on: decoding and encoding could change them.
        return msgspec.Raw(bytes(value))


class FilteredOutSerializer(serializers.Serializer[FilteredOut]):
    """A subscription that gets the event's type, and not this event."""

    subscription = serializers.CharField(source="subscription.pk")
    consumer = serializers.CharField(source="subscription.receive.name")
    reason = serializers.CharField(
        source="why.reason", help_text="Such as: data.total 12 is not > 100"
    )


class MessageDetailSerializer(MessageSerializer):
    """One message with every answer."""

    filtered = FilteredOutSerializer(
        source="listed_filtered",
        many=True,
        read_only=True,
        help_text="Subscriptions whose filter leaves it out: it has no delivery for them",
    )

    deliveries = TriedDeliverySerializer(source="listed_deliveries", many=True, read_only=True)
    payload = PayloadField(required=False, help_text="Only with expand=payload: all of it")

    class Meta(MessageSerializer.Meta):
        fields = [*MessageSerializer.Meta.fields, "filtered", "payload"]
