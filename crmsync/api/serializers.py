"""JSON shapes of the leads' endpoints. Every id is a string."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from crmsync.models import Lead
from msgplatform.core.data import ids


@extend_schema_field({"type": ["string", "number", "boolean"]})
class ExtraValueField(serializers.Field[Any, Any, Any, Any]):
    """The value of a further field."""

    def to_representation(self, value: Any) -> Any:
        return value


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
