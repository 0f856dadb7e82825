"""JSON shapes of the leads' endpoints. Every id is a string."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from crmsync.lead_fields import MAX_UID
from crmsync.models import Lead
from crmsync.models.leads import MAX_APPKEY
from msgplatform.api.intake import IdempotencyKeyField, ItemsField
from msgplatform.core.data import ids


@extend_schema_field({"type": ["string", "number", "boolean"]})
class ExtraValueField(serializers.Field[Any, Any, Any, Any]):
    """The value of a further field."""

    def to_representation(self, value: Any) -> Any:
        return value


# The serializers of requests only document them: views decode bodies with msgspec.
class LeadChangeSerializer(serializers.Serializer[dict[str, Any]]):
    """The fields of a lead; its landing page says which extra fields there are."""

    uid = serializers.CharField(
        max_length=MAX_UID,
        required=False,
        allow_null=True,
        help_text="Your own id of the person",
    )
    name = serializers.CharField(max_length=100, required=False, allow_null=True)
    phone = serializers.CharField(
        max_length=32,
        required=False,
        allow_null=True,
        help_text="13800000000 or +442079460000",
    )
    appkey = serializers.CharField(
        max_length=MAX_APPKEY,
        required=False,
        allow_null=True,
        help_text="A lead keeps its APPKEY: when it is sent, it must be the same",
    )
    extra = serializers.DictField(
        child=ExtraValueField(allow_null=True),
        required=False,
        allow_null=True,
        help_text="Every other field of the landing page: texts, numbers, true or false",
    )


class NewLeadSerializer(LeadChangeSerializer):
    """A new lead. Its landing page says what is required; null means the same as leaving a field
    out."""

    appkey = serializers.CharField(max_length=MAX_APPKEY)
    idempotency_key = IdempotencyKeyField()


class NewLeadsSerializer(serializers.Serializer[dict[str, Any]]):
    leads = ItemsField(NewLeadSerializer, "1 to 1000 leads, 16 MiB in all")


class LeadSerializer(serializers.ModelSerializer[Lead]):
    id = serializers.CharField(read_only=True)
    extra = serializers.DictField(child=ExtraValueField(), read_only=True)
    deleted = serializers.BooleanField(source="is_delete", read_only=True)
    version = serializers.IntegerField(read_only=True, help_text="Grows with every change")
    created_at = serializers.SerializerMethodField()
    updated_at = serializers.DateTimeField(source="update_time", read_only=True)

    class Meta:
        model = Lead
        fields = ["id", "appkey", "uid", "name", "phone", "extra", "deleted", "version",
                  "created_at", "updated_at"]  # fmt: skip

    def get_created_at(self, lead: Lead) -> datetime:
        return ids.datetime_of(lead.pk)
