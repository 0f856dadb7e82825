"""JSON shapes of the leads' endpoints. Every id is a string."""

from datetime import datetime
from typing import Any

from django.utils.translation import gettext
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from crmsync.messages import explanations
from crmsync.messages.states import UNREAD, CrmState
from crmsync.models import Lead, Policy, Record, Run
from msgplatform.core.data import ids
from msgplatform.doors.api.access.authentication import caller_of


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


_SOMEBODY_ELSE = "somebody else"
_STATES = [UNREAD, *(state.name.lower() for state in Record.State)]


class CrmStateSerializer(serializers.Serializer[dict[str, Any]]):
    """A lead at one CRM; `unread` until a poller has read the lead for this CRM."""

    crm = serializers.CharField()
    state = serializers.ChoiceField(choices=_STATES)
    version = serializers.IntegerField(
        allow_null=True, help_text="The newest that was read for this CRM"
    )
    confirmed_version = serializers.IntegerField(
        allow_null=True, help_text="The newest that the CRM has confirmed"
    )
    remote_id = serializers.CharField(help_text="The lead's id in the CRM, empty while not known")
    error_class = serializers.CharField(help_text="Of the last try; empty when there was no error")
    message = serializers.CharField(
        help_text="What the error class means, and the field at fault; the CRM's own words are in "
        "the console"
    )
    next_try_at = serializers.DateTimeField(allow_null=True)
    updated_at = serializers.DateTimeField(allow_null=True)


class LeadCrmsSerializer(serializers.Serializer[dict[str, Any]]):
    crms = CrmStateSerializer(many=True)


class AskedByField(serializers.CharField):
    """The key that asked for a run, if it belongs to the caller's own system. The names of other
    callers, and of people at the console, are not the caller's business."""

    def __init__(self) -> None:
        text = "A key of your business system, or `somebody else`; empty when nobody asked"
        super().__init__(read_only=True, help_text=text)

    def to_representation(self, value: str) -> str:
        caller = caller_of(self.context["request"])
        # `str(caller)` has this form: `shop/key 7`. Names of console users have no slash.
        system, _key, _number = value.rpartition("/key ")
        return value if not value or system == caller.biz_name else _SOMEBODY_ELSE


class StoppedSerializer(serializers.Serializer[dict[str, Any]]):
    """Removals that the guard has stopped."""

    since = serializers.DateTimeField()
    removals = serializers.IntegerField(
        help_text="Records that would be deleted, or lose the value of a field"
    )
    records = serializers.IntegerField(help_text="Records that the policy has in the CRM")
    decision = serializers.ChoiceField(
        ["", *Policy.Decision.values], help_text="What a person has decided, until it is done"
    )


class PolicySerializer(serializers.ModelSerializer[Policy]):
    id = serializers.CharField(read_only=True)
    source = serializers.CharField(source="source.name", read_only=True)  # type: ignore[assignment]
    crm = serializers.CharField(source="crm.name", read_only=True)
    enabled = serializers.SerializerMethodField(help_text="Both the policy and its CRM")
    paused = serializers.SerializerMethodField(help_text="Its CRM is paused")
    requested = serializers.CharField(
        read_only=True, help_text="The kind of run that was asked for and has not begun, else empty"
    )
    requested_by = AskedByField()
    stopped = serializers.SerializerMethodField(
        help_text="Removals that wait for a person, who confirms or refuses them in the console; "
        "null when the guard has stopped nothing"
    )

    class Meta:
        model = Policy
        fields = ["id", "source", "crm", "enabled", "paused", "requested", "requested_by",
                  "stopped"]  # fmt: skip
        read_only_fields = fields

    def get_enabled(self, policy: Policy) -> bool:
        return policy.enabled and policy.crm.enabled

    def get_paused(self, policy: Policy) -> bool:
        return policy.crm.paused_at is not None

    @extend_schema_field(StoppedSerializer(allow_null=True))
    def get_stopped(self, policy: Policy) -> dict[str, Any] | None:
        if policy.stopped_at is None:
            return None
        return {
            "since": policy.stopped_at, "removals": policy.stopped_removals,
            "records": policy.stopped_records, "decision": policy.decision,
        }  # fmt: skip


class RequestedRunSerializer(serializers.Serializer[dict[str, Any]]):
    policy = serializers.CharField()
    kind = serializers.ChoiceField(choices=Policy.Kind.choices)
    requested_by = serializers.CharField()


class ProgressSerializer(serializers.Serializer[dict[str, Any]]):
    """Counts of records."""

    read = serializers.IntegerField()
    unchanged = serializers.IntegerField(help_text="The CRM holds them as they are")
    sent = serializers.IntegerField(help_text="Those to be sent; each ends as one of the next four")
    confirmed = serializers.IntegerField()
    replaced = serializers.IntegerField(help_text="By a newer version of the same row")
    dead = serializers.IntegerField(help_text="Not tried any more: they are in the recovery log")
    waiting = serializers.IntegerField()
    records_per_second = serializers.FloatField(
        source="rate", allow_null=True, help_text="Done since it began; null once it is over"
    )
    seconds_left = serializers.FloatField(source="left", allow_null=True)
    is_over = serializers.BooleanField()
    partly = serializers.BooleanField(
        help_text="It is too long for all of it to be added up: the counts from `sent` on are low"
    )


class RunSerializer(serializers.ModelSerializer[Run]):
    id = serializers.CharField(read_only=True)
    policy = serializers.CharField(source="policy_id", read_only=True)
    state = serializers.SerializerMethodField()
    requested_by = AskedByField()
    problem = serializers.SerializerMethodField(help_text="Why it failed, else empty")
    progress = ProgressSerializer(read_only=True)

    class Meta:
        model = Run
        fields = ["id", "policy", "kind", "state", "requested_by", "started_at", "read_at",
                  "problem", "progress"]  # fmt: skip
        read_only_fields = fields

    def get_state(self, run: Run) -> str:
        return Run.State(run.state).name.lower()

    def get_problem(self, run: Run) -> str:
        # The problem's own text names tables of the source.
        if not run.problem:
            return ""
        return gettext("The source does not fit its settings; the console says why.")


def crm_state(state: CrmState) -> dict[str, Any]:
    """A lead at one CRM as JSON."""
    record = state.record
    return {
        "crm": state.policy.crm.name,
        "state": state.name,
        "version": record.version if record else None,
        "confirmed_version": record.sent_version or None if record else None,
        "remote_id": record.remote_id if record else "",
        "error_class": state.error_class,
        "message": explanations.error(state),
        "next_try_at": state.next_try_at,
        "updated_at": record.updated_at if record else None,
    }
