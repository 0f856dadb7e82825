"""CRMs, sources and policies over the management API."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet
from django.http import Http404
from drf_spectacular.utils import OpenApiParameter, extend_schema_field
from rest_framework import serializers

from crmsync import setup_rules
from crmsync.models import Crm, LandingPage, Policy, Source
from crmsync.models.sources import HIVE
from msgplatform.api.management.resources import ResourceListView
from msgplatform.core.errors import InvalidInput, NotNow, Undecryptable
from msgplatform.models import Biz
from msgplatform.setup.fields import DurationField, NamedField, TextField, TextListField
from msgplatform.setup.resource import Resource
from msgplatform.setup.serializers import WholeSerializer

# Where rows are read: watermarks of policies are places there, and records have versions of it.
_PLACE = ("table", "key_column", "time_column", "version_column")
_SOURCE_NAME = {"type": "string", "pattern": r"^[^/\s]([^/]*[^/\s])?$", "maxLength": 100}


def _refuse(faults: Iterable[tuple[str, str]]) -> None:
    """Raises ValidationError with all faults by field."""
    sentences: dict[str, list[str]] = {}
    for name, sentence in faults:
        sentences.setdefault("system" if name == "biz" else name, []).append(sentence)
    if sentences:
        raise ValidationError(sentences)


@extend_schema_field({"type": "object", "additionalProperties": {}})
class ObjectField(serializers.JSONField):
    """A JSON object; the adapter checks it."""

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, dict):
            raise serializers.ValidationError("An object.")
        return super().to_internal_value(data)


@extend_schema_field({"type": "array", "items": {"type": "number", "minimum": 0}})
class WaitsField(serializers.ListField):
    child = DurationField()


class CrmSerializer(WholeSerializer):
    """A CRM with its connection."""

    settings = ObjectField(
        required=False, allow_null=True, help_text="The console's form lists those of each kind"
    )
    credentials = ObjectField(
        write_only=True,
        required=False,
        allow_null=True,
        help_text="Never shown: left out, the stored ones stay, unless the settings have another "
        "address; {} takes them away",
    )
    credential_names = serializers.SerializerMethodField(help_text="Names of stored credentials")
    retry_seconds = WaitsField(
        required=False, allow_null=True, help_text="Before each try after the first: [10, 60]"
    )

    class Meta:
        model = Crm
        fields = ["name", "adapter", "settings", "credentials", "credential_names", "concurrency",
                  "retry_seconds", "enabled", "paused_at", "paused_because",
                  "created_at"]  # fmt: skip
        read_only_fields = ["name", "paused_at", "paused_because", "created_at"]

    def get_credential_names(self, row: Crm) -> list[str]:
        try:
            return sorted(row.credentials)
        except Undecryptable:
            return []


class CrmResource(Resource):
    noun, nouns = "CRM", "CRMs"
    audit_noun = "crm"
    list_path, path = "crms", "crms/<slug:name>"
    scope = "manage:crms"
    answers_limited_keys = True
    model = Crm
    serializer_class = CrmSerializer
    secret_fields = frozenset({"credentials"})
    example = {
        "adapter": "hubspot",
        "settings": {"object": "contacts", "id_property": "hive_id"},
        "credentials": {"token": "pat-na1-…"},
    }
    on_delete = (
        "Switches it off, for records refer to it: nothing is read for it and nothing sent. A PUT "
        "with enabled true takes it up again."
    )
    notes = (
        "Nothing is sent before a policy carries a source to it. Another account or database needs "
        "a CRM of its own: the records of this one have ids of the present account."
    )
    list_notes = "Every CRM, by name."

    def check_change(
        self, row: Crm, before: Mapping[str, Any], sent_names: Collection[str]
    ) -> None:
        _refuse(setup_rules.crm_faults(row))
        if row.pk and "credentials" not in sent_names:
            stored = before["adapter"], before["settings"]
            _refuse(setup_rules.kept_credentials_faults(row, *stored))


class SourceSerializer(WholeSerializer):
    """A table whose changes are read."""

    database = TextField(
        write_only=True,
        required=False,
        allow_null=True,
        help_text="mysql://user:password@host:3306/name. Never shown: left out, the stored one "
        "stays",
    )
    value_columns = TextListField(help_text="The columns that mappings use")

    class Meta:
        model = Source
        fields = ["name", "database", "table", "key_column", "time_column", "deleted_column",
                  "version_column", "value_columns", "zone", "lag_seconds",
                  "created_at"]  # fmt: skip
        read_only_fields = ["name", "created_at"]


class SourceResource(Resource):
    noun, nouns = "source", "sources"
    audit_noun = "sync_source"
    list_path, path = "sources", "sources/<str:name>"
    scope = "manage:sources"
    answers_limited_keys = True
    model = Source
    serializer_class = SourceSerializer
    secret_fields = frozenset({"database"})
    example = {
        "database": "mysql://reader:password@db.example.com:3306/shop",
        "table": "customer",
        "time_column": "updated_at",
        "value_columns": ["name", "email"],
    }
    on_delete = "Deletes a source that no policy carries; 409 for another one, and for the hive."
    notes = (
        "The hive, the platform's own leads, is there already and cannot be changed; neither can "
        "the table and the columns by which changes are seen while a policy carries the source."
    )
    list_notes = "Every source, by name."
    parameters = [OpenApiParameter("name", _SOURCE_NAME, OpenApiParameter.PATH)]
    conflicts = ("PUT", "DELETE")

    def check_change(
        self, row: Source, before: Mapping[str, Any], sent_names: Collection[str]
    ) -> None:
        if row.is_hive:
            raise NotNow("The hive cannot be changed.")
        if row.pk and Policy.objects.filter(source=row).exists():
            for name in _PLACE:
                if getattr(row, name) != before[name]:
                    words = (
                        "A policy carries this source: its place in the table means this column."
                    )
                    raise InvalidInput(words, name)
        _refuse(setup_rules.source_faults(row))

    @classmethod
    def all_rows(cls) -> QuerySet[Source]:
        return Source.objects.exclude(name=HIVE)

    def remove(self, row: Source) -> None:
        if row.is_hive or Policy.objects.filter(source=row).exists():
            raise NotNow("A policy carries this source, or it is the hive.")
        self.audit("sync_source_deleted", row.name)
        row.delete()


class SyncPolicySerializer(WholeSerializer):
    """How one source is carried to one CRM."""

    id = serializers.CharField(read_only=True)
    # `source` is also an attribute of every field.
    source = serializers.CharField(source="source.name", read_only=True)  # type: ignore[assignment]
    crm = serializers.CharField(source="crm.name", read_only=True)
    system = NamedField(
        source="biz",
        queryset=Biz.objects.all(),
        required=False,
        allow_null=True,
        help_text="Only this system's leads; left out: those of all",
    )
    appkeys = TextListField(help_text="Only leads of these landing pages; empty: all")

    class Meta:
        model = Policy
        fields = ["id", "source", "crm", "system", "appkeys", "mapping", "key_prefix",
                  "interval_seconds", "cron", "hours", "batch_size", "sweep_cron", "on_conflict",
                  "delete_adopted", "enabled", "created_at"]  # fmt: skip
        read_only_fields = ["created_at"]
        # Lines as they are stored: what is read can be sent back, and changes nothing.
        extra_kwargs = {"mapping": {"trim_whitespace": False}}


class PolicyResource(Resource):
    noun, nouns = "policy", "policies"
    list_path, path = "policies", "policies/<str:source>/<slug:crm>"
    address_lookups = {"source": "source__name", "crm": "crm__name"}
    scope = "manage:policies"
    answers_limited_keys = True
    system_lookup = "biz__name"
    named_models = (LandingPage,)
    model = Policy
    serializer_class = SyncPolicySerializer
    example = {"mapping": "email = email\nfirstname = name", "interval_seconds": 10}
    on_delete = (
        "Switches it off, for records refer to it: nothing is read for it. A PUT with enabled true "
        "goes on where it stopped."
    )
    notes = "The source and the CRM must be there."
    list_notes = "Every policy, in the order in which they were made."
    parameters = [
        OpenApiParameter("source", _SOURCE_NAME, OpenApiParameter.PATH),
        OpenApiParameter("crm", {"type": "string"}, OpenApiParameter.PATH),
    ]

    @classmethod
    def visible_rows(cls, rows: QuerySet[Policy], systems: Collection[str]) -> QuerySet[Policy]:
        """Policies that carry the leads of all systems, and those of the systems."""
        return rows.filter(Q(biz=None) | Q(biz__name__in=systems)) if systems else rows

    def new(self) -> Policy:
        source = Source.objects.filter(name=self.address["source"]).first()
        crm = Crm.objects.filter(name=self.address["crm"]).first()
        if source is None or crm is None:
            raise Http404("There is no such source or CRM; create it first.")
        return Policy(source=source, crm=crm)

    def title(self, row: Policy) -> str:
        return str(row)

    def check_change(
        self, row: Policy, before: Mapping[str, Any], sent_names: Collection[str]
    ) -> None:
        _refuse(setup_rules.policy_faults(row))


class SyncPolicyListView(ResourceListView):
    keyset_ordering = ("id",)

    def get_queryset(self) -> QuerySet[Policy]:
        return Policy.objects.select_related("source", "crm", "biz")
