"""JSON shapes of answers. Every id is a string."""

from __future__ import annotations

from typing import Any

import msgspec
from rest_framework import serializers

from gateway.messages import incoming
from gateway.messages.states import State
from gateway.models import SgipMt
from msgplatform.doors.api.intake import VerdictSerializer


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


# The list makes all its items at once: by item it would be a query each.
class _IncomingListSerializer(serializers.ListSerializer[Any]):
    def to_representation(self, data: Any) -> Any:
        return [msgspec.to_builtins(message) for message in incoming.shown(list(data))]


class IncomingSerializer(serializers.Serializer[Any]):
    """A message from a handset."""

    class Meta:
        list_serializer_class = _IncomingListSerializer

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """In a method, since `from` is a word of Python."""
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
