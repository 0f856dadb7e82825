"""Subscriptions as people set them up: which consumer gets the messages of which system.

The name of a subscription is `system/consumer`: orders/warehouse.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.http import Http404
from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from msgplatform.core.data import sql
from msgplatform.setup import fields
from msgplatform.setup.resource import Resource, system_of
from notify import signals
from notify.models import BizReceive, Receive
from notify.subscriptions import limits, matching

_Status = BizReceive.Status
_SETTABLE = (_Status.NORMAL, _Status.PAUSED, _Status.DISCARDED)


class StatusField(serializers.ChoiceField):
    """By name. The platform alone sets `skipping` and `disabled`; what is read may be sent back."""

    def __init__(self, **options: Any) -> None:
        super().__init__(choices=[status.name.lower() for status in _Status], **options)

    def to_internal_value(self, data: Any) -> Any:
        stored_status = getattr(self.parent.instance, "status", None)
        if stored_status is not None and data == self.to_representation(stored_status):
            return stored_status
        for settable in _SETTABLE:
            if data == settable.name.lower():
                # `skipping` becomes `normal` by itself when all held deliveries are skipped.
                is_on_the_way = (stored_status, settable) == (_Status.SKIPPING, _Status.NORMAL)
                return int(_Status.SKIPPING if is_on_the_way else settable)
        names = ", ".join(settable.name.lower() for settable in _SETTABLE)
        raise serializers.ValidationError(f"Use one of {names}.")

    def to_representation(self, value: Any) -> str:
        return _Status(value).name.lower()


# The schema of a list, with the bounds of `limits`. Only `limits` checks the values.
def _text_list(pattern: str) -> Any:
    texts = {"type": "string", "pattern": pattern}
    return extend_schema_field({"type": "array", "items": texts, "maxItems": limits.MAX_PATTERNS})


@_text_list(f"^{matching.PATTERN.pattern}$")
class EventTypesField(fields.TextListField):
    """Patterns of event types."""


@_text_list(f"^{limits.CHANNEL.pattern}$")
class ChannelsField(fields.TextListField):
    """Names of channels."""


@extend_schema_field(
    {"type": "number", "minimum": limits.MIN_TIMEOUT, "maximum": limits.longest_timeout()}
)
class TimeoutField(fields.DurationField):
    """Seconds for one request."""


@extend_schema_field(
    {
        "type": "array",
        "items": {"type": "number", "minimum": 0, "maximum": limits.MAX_DELAY_SECONDS},
        "maxItems": limits.MAX_ATTEMPTS,
    }
)
class ScheduleField(fields.WaitsField):
    """Delays, one after each failed attempt."""


@extend_schema_field({"type": "number", "minimum": 0.01, "maximum": 100_000})
class RateField(fields.NumberField):
    """Requests a second."""


class SubscriptionSerializer(fields.WholeSerializer):
    """The messages of a business system that a consumer gets, their pace and their tries."""

    id = serializers.CharField(read_only=True)
    name = serializers.CharField(source="full_name", read_only=True, help_text="system/consumer")
    system = serializers.CharField(source="biz.name", read_only=True)
    consumer = serializers.CharField(source="receive.name", read_only=True)
    status = StatusField(
        required=False,
        allow_null=True,
        help_text="normal, paused or discarded; left out, it stays as it is",
    )
    event_types = EventTypesField()
    channels = ChannelsField()
    filter = fields.ObjectField(required=False, allow_null=True)
    timeout = TimeoutField(required=False, allow_null=True)
    schedule = ScheduleField(required=False, allow_null=True)
    rate_limit = RateField(required=False, allow_null=True)

    class Meta:
        model = BizReceive
        fields = [
            "id", "name", "system", "consumer", "status", "event_types", "channels", "filter",
            "filter_since", "format", "timeout", "schedule", "attempts_limit", "in_flight_limit",
            "rate_limit", "own_process", "log_answers", "log_days", "failing_since", "failures",
            "disabled_reason", "created_at",
        ]  # fmt: skip
        read_only_fields = [
            "filter_since", "failing_since", "failures", "disabled_reason", "created_at",
        ]  # fmt: skip
        notes = {
            "schedule": 'In seconds, [5, 300, 1800], or with units, ["5 s", "5 min", "30 min"]. '
            "Behind an open breaker a delivery waits for at least NOTIFY_BREAKER_KEEP_HOURS before "
            "it is given up."
        }


class Subscription(Resource):
    noun, nouns = "subscription", "subscriptions"
    list_path, path = "subscriptions", "subscriptions/<slug:system>/<slug:consumer>"
    address_lookups = {"system": "biz__name", "consumer": "receive__name"}
    scope = "manage:subscriptions"
    answers_limited_keys = True
    system_lookup = "biz__name"
    moves = True
    moved_columns = ("status",)  # statuses that the platform sets move too
    model = BizReceive
    serializer_class = SubscriptionSerializer
    kept_fields = frozenset({"status"})
    groups = [
        (None, ["biz", "receive"]),
        (_("What it gets"), ["event_types", "channels", "filter", "format"]),
        (_("Attempts"), ["schedule", "attempts_limit", "timeout"]),
        (_("Pace"), ["in_flight_limit", "rate_limit", "own_process"]),
        (_("Log of attempts"), ["log_answers", "log_days"]),
    ]
    example = {"event_types": ["order.*"], "rate_limit": 50, "in_flight_limit": 16}
    on_delete = (
        "Discards it: no deliveries are made, and those that wait are skipped. It stays in the "
        "list, since deliveries refer to it; a PUT with the status normal takes it up again."
    )
    notes = (
        "The business system and the consumer must be there. The status stays as it is unless the "
        "body names one."
    )
    list_notes = "Every subscription, discarded ones too, in the order in which they were made."
    list_order = ("id",)
    list_related = ("biz", "receive")
    list_system = "biz"

    @classmethod
    def is_removed(cls, row: BizReceive) -> bool:
        return row.status == _Status.DISCARDED

    @classmethod
    def is_written(cls, row: BizReceive, field_name: str) -> bool:
        """True if the field is written to files; a status that the platform sets is not."""
        return field_name != "status" or row.status in _SETTABLE

    def body_of_removed(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        status = body.get("status")  # null is the same as left out
        return {**body, "status": _Status.NORMAL.name.lower() if status is None else status}

    def new(self) -> BizReceive:
        consumer = Receive.objects.filter(name=self.address["consumer"]).first()
        system = system_of(self.address["system"])
        if consumer is None:
            raise Http404("There is no such consumer; create it first.")
        return BizReceive(biz=system, receive=consumer)

    @classmethod
    def title(cls, row: BizReceive) -> str:
        return f"{row} #{row.pk}"

    @classmethod
    def fixed_fields(cls, row: BizReceive) -> Mapping[str, str]:
        """System and consumer are fixed, because the queue and the deliveries have their ids."""
        return {"biz": "", "receive": ""}

    def set_dependent_fields(self, row: BizReceive, names: Sequence[str]) -> Sequence[str]:
        dependent: dict[str, Any] = {}
        if "filter" in names:
            # The full second by which it is stored: events that are accepted later obey it.
            dependent["filter_since"] = (sql.now() + timedelta(seconds=1)).replace(microsecond=0)
        if "status" in names and row.status == _Status.NORMAL:
            dependent |= BizReceive.RESUMED
        for name, value in dependent.items():
            setattr(row, name, value)
        return list(dependent)

    @classmethod
    def hold(cls, row: BizReceive) -> Sequence[str]:
        """Pause the subscription in the new cell until the old cell has sent its messages."""
        if row.status not in BizReceive.ACTIVE:
            return ()
        row.status = _Status.PAUSED
        return ["status"]

    @classmethod
    def resume(cls, rows: Sequence[BizReceive]) -> None:
        paused_rows = BizReceive.objects.filter(
            pk__in=[row.pk for row in rows], status=_Status.PAUSED
        )
        if paused_rows.update(status=_Status.NORMAL, **BizReceive.RESUMED):
            transaction.on_commit(signals.MAKER.send)

    @classmethod
    def audit_value(cls, name: str, value: Any) -> Any:
        is_number = name == "status" and not isinstance(value, str)  # the API has names
        return _Status(value).name if is_number else value

    def remove(self, row: BizReceive) -> None:
        if row.status != _Status.DISCARDED:
            old_status = _Status(row.status).name
            row.status = _Status.DISCARDED
            row.save(update_fields=["status"])
            self.audit("subscription_discarded", self.title(row), before=old_status)
