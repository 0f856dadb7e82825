"""The catalogue of event types as people set it up."""

from collections.abc import Collection, Mapping
from typing import Any

from django.db.models import Q, QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema_field
from rest_framework import serializers

from msgplatform.models import Biz
from msgplatform.setup.fields import ObjectField, WholeSerializer
from msgplatform.setup.resource import Resource, system_of
from notify.models import EventType
from notify.subscriptions.matching import EVENT_TYPE_PATTERN

_EXAMPLE = {
    "description": "An order was paid in full.",
    "example": {"order": "20261120-7", "amount": "99.00"},
    "schema": {
        "type": "object",
        "required": ["order", "amount"],
        "properties": {"order": {"type": "string"}, "amount": {"type": "string"}},
    },
}
_ADDRESS = [
    OpenApiParameter(
        "name",
        {"type": "string", "pattern": EVENT_TYPE_PATTERN, "maxLength": 128},
        OpenApiParameter.PATH,
        description="The event type: order.paid",
    )
]
_NOTES = (
    "The example must match the schema. Payloads of business systems that validate their events "
    "must match it from then on; other processes notice the change within seconds."
)


# The schema names no type, because client generators cannot read a list of types.
@extend_schema_field({})
class PayloadField(serializers.JSONField):
    """Any JSON value."""


class EventTypeSerializer(WholeSerializer):
    """An entry of the catalogue."""

    # No `allow_null`, which would add a type to the schema. Nulls of a body are removed before.
    example = PayloadField(required=False)
    schema = ObjectField(required=False, allow_null=True)
    personal_fields = serializers.ListField(
        child=serializers.CharField(max_length=200),
        required=False,
        allow_null=True,
    )
    system = serializers.SerializerMethodField(help_text="null: shared by all business systems")

    class Meta:
        model = EventType
        fields = ["name", "system", "description", "example", "schema", "personal_fields",
                  "created_at", "changed_at"]  # fmt: skip
        read_only_fields = ["name", "created_at", "changed_at"]

    def to_representation(self, instance: EventType) -> dict[str, Any]:
        values = super().to_representation(instance)
        return {**values, "personal_fields": values["personal_fields"] or []}

    def get_system(self, row: EventType) -> str | None:
        return row.biz.name if row.biz else None


class SharedEventType(Resource):
    noun, nouns = "shared event type", "event types"
    list_path, path = "event-types", "event-types/<path:name>"
    scope = "manage:event-types"
    answers_limited_keys = True
    moves = True  # shared entries move too, because the system's events may have to match them
    model = EventType
    serializer_class = EventTypeSerializer
    example = _EXAMPLE
    on_delete = (
        "Takes it out of the catalogue. Events of this type are accepted as before. 409 while it "
        "has `personal_fields`, since erasures need these for stored events."
    )
    conflicts = ("DELETE",)
    notes = _NOTES
    list_notes = (
        "The catalogue by name: entries that all business systems share, and those of their own."
    )
    list_order = ("name", "owner")
    list_related = ("biz",)
    list_system = "owner"
    parameters = _ADDRESS
    audit_noun = "event_type"
    is_deleted = True
    groups = [(None, ["name", "biz", "description", "example", "schema", "personal_fields"])]

    @classmethod
    def all_rows(cls) -> QuerySet[EventType]:
        return EventType.objects.filter(owner=0)

    @classmethod
    def visible_rows(
        cls, rows: QuerySet[EventType], systems: Collection[str]
    ) -> QuerySet[EventType]:
        """The shared entries, which everybody may see, and the entries of these systems."""
        return rows.filter(Q(biz=None) | Q(biz__name__in=systems)) if systems else rows

    def system(self) -> Biz | None:
        """The system of the address; None for a shared entry. Raises Http404."""
        return None

    def rows(self) -> QuerySet[EventType]:
        system = self.system()
        return EventType.objects.filter(owner=system.pk if system else 0, name=self.name)

    def new(self) -> EventType:
        return EventType(biz=self.system(), name=self.name)

    @classmethod
    def fixed_fields(cls, row: EventType) -> Mapping[str, str]:
        """An erasure finds the personal fields of stored events by name and system."""
        return {"name": "", "biz": ""} if row.personal_fields else {}

    @classmethod
    def removal_fault(cls, row: EventType) -> str:
        words = "Erasures need its personal fields for stored events: take them out first."
        return words if row.personal_fields else ""

    @classmethod
    def title(cls, row: EventType) -> str:
        return str(row)

    def values(self, row: EventType) -> dict[str, Any]:
        """The row's values. `personal_fields` NULL is shown as an empty list."""
        values = super().values(row)
        return {**values, "personal_fields": values["personal_fields"] or []}

    @classmethod
    def deleted_detail(cls, row: EventType) -> Mapping[str, Any]:
        names = ("description", "example", "schema", "personal_fields")
        return {"before": {name: getattr(row, name) for name in names}}


class OwnEventType(SharedEventType):
    noun = "system's own event type"
    list_path = ""  # the list of shared entries has the systems' own entries too
    path = "systems/<slug:system>/event-types/<path:name>"
    address_lookups = {"system": "biz__name", "name": "name"}
    system_lookup = "biz__name"
    section = "event-types"  # `orders/order.paid` and the shared `order.paid` in one section
    on_delete = f"{SharedEventType.on_delete} A shared entry of the same name holds again."
    notes = f"It goes before a shared entry of the same name. {_NOTES}"

    @classmethod
    def all_rows(cls) -> QuerySet[EventType]:
        return EventType.objects.exclude(owner=0)

    def system(self) -> Biz | None:
        return system_of(self.address["system"])
