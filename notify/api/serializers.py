"""JSON shapes of Notify's endpoints. Every id is a string: JavaScript rounds beyond 2^53."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from notify.models import Attempt, BizMsg, ReceiveMsg


class PublishSerializer(serializers.Serializer[dict[str, Any]]):
    """Documents the request; the view decodes it with msgspec to keep the payload's bytes."""

    event_type = serializers.CharField(
        max_length=128, help_text="Letters, digits and _ in parts joined by dots: order.paid"
    )
    payload = serializers.JSONField(
        help_text="Any JSON, at most 256 KiB; delivered byte for byte as `data`"
    )
    channel = serializers.CharField(max_length=64, required=False, default="")
    idempotency_key = serializers.CharField(
        max_length=128,
        required=False,
        help_text="Repeat with the same key and get the first answer; the header works as well",
    )


class PublishBatchSerializer(serializers.Serializer[dict[str, Any]]):
    messages = PublishSerializer(many=True, help_text="1 to 1000 events, 16 MiB in all")


class DeliverySerializer(serializers.ModelSerializer[ReceiveMsg]):
    id = serializers.CharField(read_only=True)
    subscription = serializers.CharField(source="biz_receive_id", read_only=True)
    status = serializers.SerializerMethodField()

    class Meta:
        model = ReceiveMsg
        fields = ["id", "subscription", "status", "send_times", "http_status", "error",
                  "next_at", "updated_at"]  # fmt: skip

    def get_status(self, copy: ReceiveMsg) -> str:
        return ReceiveMsg.Status(copy.status).name.lower()


class MessageSerializer(serializers.ModelSerializer[BizMsg]):
    id = serializers.CharField(read_only=True)
    state = serializers.SerializerMethodField()
    deliveries = DeliverySerializer(source="copies", many=True, read_only=True)

    class Meta:
        model = BizMsg
        fields = ["id", "event_type", "channel", "state", "created_at", "deliveries"]

    def get_state(self, message: BizMsg) -> str:
        return BizMsg.State(message.state).name.lower()


class AttemptSerializer(serializers.ModelSerializer[Attempt]):
    class Meta:
        model = Attempt
        fields = ["number", "at", "seconds", "http_status", "error", "detail",
                  "response_headers", "response_body"]  # fmt: skip


class TriedDeliverySerializer(DeliverySerializer):
    attempts = AttemptSerializer(many=True, read_only=True)

    class Meta(DeliverySerializer.Meta):
        fields = [*DeliverySerializer.Meta.fields, "attempts"]


class MessageDetailSerializer(MessageSerializer):
    """One message with every answer."""

    deliveries = TriedDeliverySerializer(source="copies", many=True, read_only=True)
