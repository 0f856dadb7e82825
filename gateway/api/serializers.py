"""JSON shapes of the SMS endpoints, for the schema. Every id is a string."""

from __future__ import annotations

from typing import Any

import msgspec
from rest_framework import serializers

from gateway.models import SgipMt
from gateway.search import states
from msgplatform.api.intake import VerdictSerializer


class SendSerializer(serializers.Serializer[dict[str, Any]]):
    """Documents the request; the view decodes it with msgspec."""

    to = serializers.ListField(
        child=serializers.CharField(),
        help_text="Telephone numbers, 13800000000 or 8613800000000; one may stand alone",
    )
    text = serializers.CharField(max_length=2000, help_text="A long one is sent in parts")
    account = serializers.SlugField(required=False, help_text="Empty: the default account")
    extension = serializers.CharField(
        required=False, help_text="Digits behind the account's SP number"
    )
    priority = serializers.IntegerField(required=False, min_value=0, max_value=9, default=0)
    schedule_at = serializers.DateTimeField(required=False, help_text="Not before this time")
    expire_at = serializers.DateTimeField(required=False, help_text="Not after this time")
    reference = serializers.CharField(
        max_length=64, required=False, help_text="Your own; it comes back with every report"
    )
    idempotency_key = serializers.CharField(
        max_length=128,
        required=False,
        help_text="Repeat with the same key and get the first answer; the header works as well",
    )


class AcceptedSmsSerializer(serializers.Serializer[dict[str, Any]]):
    outcome = serializers.CharField(help_text="`created` or `duplicate`")
    ids = serializers.ListField(
        child=serializers.CharField(), help_text="One for each recipient, in the order of `to`"
    )


class SendBatchSerializer(serializers.Serializer[dict[str, Any]]):
    messages = SendSerializer(many=True, help_text="1 to 1000, 10,000 recipients, 16 MiB in all")


class SmsVerdictSerializer(VerdictSerializer):
    """`ids` for created and duplicate; code, field and detail for rejected."""

    id = None  # type: ignore[assignment]  # how DRF leaves out an inherited field
    ids = serializers.ListField(child=serializers.CharField(), required=False)
    code = serializers.ChoiceField(choices=["invalid", "conflict", "limit"], required=False)


class SmsVerdictsSerializer(serializers.Serializer[dict[str, Any]]):
    results = SmsVerdictSerializer(many=True)


class _StateListSerializer(serializers.ListSerializer[SgipMt]):
    def to_representation(self, data: Any) -> Any:
        """All at once: the accounts' names are one query."""
        return [msgspec.to_builtins(state) for state in states.archived_states(list(data))]


class SmsSerializer(serializers.Serializer[SgipMt]):
    """What became of one message; see `query.State`."""

    id = serializers.CharField()
    state = serializers.ChoiceField(
        choices=["pending", "submitted", "responded", *SgipMt.Final.values]
    )
    to = serializers.CharField()
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
    reported_at = serializers.DateTimeField(allow_null=True)
    archived_at = serializers.DateTimeField(allow_null=True)

    class Meta:
        list_serializer_class = _StateListSerializer
