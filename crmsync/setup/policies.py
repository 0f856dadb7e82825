"""Policies as people set them up: how one source is carried to one CRM."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet
from django.http import Http404
from django.utils import timezone
from django.utils.translation import gettext as _, gettext_lazy
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers

from crmsync.models import Crm, LandingPage, Policy, Record, Source
from crmsync.policies import mapping, schedule
from crmsync.setup.sources import SOURCE_NAME
from msgplatform.core.errors import InvalidInput
from msgplatform.models import Biz
from msgplatform.setup.declaration import Before, Faults
from msgplatform.setup.fields import NamedField, TextListField, WholeSerializer
from msgplatform.setup.resource import Resource


class SyncPolicySerializer(WholeSerializer):
    """How one source is carried to one CRM."""

    id = serializers.CharField(read_only=True)
    # `source` is also an attribute of every serializer field.
    source = serializers.CharField(source="source.name", read_only=True)  # type: ignore[assignment]
    crm = serializers.CharField(source="crm.name", read_only=True)
    system = NamedField(source="biz", queryset=Biz.objects.all(), required=False, allow_null=True)
    appkeys = TextListField()

    class Meta:
        model = Policy
        fields = ["id", "source", "crm", "system", "appkeys", "mapping", "key_prefix",
                  "interval_seconds", "cron", "hours", "batch_size", "sweep_cron", "on_conflict",
                  "delete_adopted", "guard_percent", "guard_records", "enabled",
                  "created_at"]  # fmt: skip
        read_only_fields = ["created_at"]
        # Lines as they are stored: sending back what was read changes nothing.
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
    checked_fields = frozenset({"source", "crm"})
    groups = [
        (None, ["source", "crm", "enabled"]),
        (
            gettext_lazy("When"),
            ["interval_seconds", "cron", "hours", "sweep_cron", "batch_size"],
        ),
        (gettext_lazy("What is sent"), ["biz", "appkeys", "key_prefix", "mapping"]),
        (gettext_lazy("Records that people made in the CRM"), ["on_conflict", "delete_adopted"]),
        (gettext_lazy("Guard against removals"), ["guard_percent", "guard_records"]),
    ]
    example = {"mapping": "email = email\nfirstname = name", "interval_seconds": 10}
    on_delete = (
        "Switches it off, for records refer to it: nothing is read for it. A PUT with enabled true "
        "goes on where it stopped."
    )
    notes = "The source and the CRM must be there."
    list_notes = "Every policy, in the order in which they were made."
    list_order = ("id",)
    list_related = ("source", "crm", "biz")
    parameters = [
        OpenApiParameter("source", SOURCE_NAME, OpenApiParameter.PATH),
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

    @classmethod
    def fixed_fields(cls, row: Policy) -> Mapping[str, str]:
        """A policy's records and its watermark belong to this source and this CRM."""
        return {"source": "", "crm": ""}

    @classmethod
    def title(cls, row: Policy) -> str:
        return f"{row} #{row.pk}"

    def faults(self, row: Policy, before: Before | None) -> Faults:
        """Faults in the times, the mapping, the filters, the prefix of keys and the system. In the
        transaction that saves the row it locks the CRM; a preview has none."""
        checks: list[tuple[str, Callable[[Any], Any]]] = [
            ("cron", lambda text: schedule.next_time(text, timezone.now())),
            ("hours", schedule.spans),
            ("sweep_cron", lambda text: schedule.next_time(text, timezone.now())),
            ("mapping", lambda text: mapping.parse(text).check_columns(row.source.value_columns)),
        ]
        for name, check in checks:
            if value := getattr(row, name):
                try:
                    check(value)
                except InvalidInput as error:
                    yield name, str(error)
        # Only the hive has the columns by which leads are filtered.
        for name, column in (("biz", "biz_id"), ("appkeys", "appkey")):
            if getattr(row, name) and column not in row.source.value_columns:
                yield name, _("The source has no column %s: leave this empty.") % column
        if row.sweep_cron and not row.source.version_column:
            yield "sweep_cron", _("The source has no version column to compare: leave this empty.")
        # Two sources may have equal keys, and with equal prefixes these would be one record in the
        # CRM. Locked: of two requests with one prefix, the second sees the policy of the first.
        if transaction.get_connection().in_atomic_block:
            list(Crm.objects.select_for_update().filter(pk=row.crm_id).values_list("pk"))
        for other in Policy.objects.filter(crm_id=row.crm_id).exclude(pk=row.pk):
            # Numeric keys under two prefixes can be equal: with “1”, the key 23 equals the key 123
            # of a policy without a prefix.
            prefixes = (row.key_prefix.casefold(), other.key_prefix.casefold())
            short, long = sorted(prefixes, key=len)
            end = long.removeprefix(short)
            if long.startswith(short) and (not end or end.isdecimal()):
                words = _("%s uses it, or its prefix and a digit are the same: two sources of one "
                          "CRM need different prefixes, or one overwrites the other's "
                          "records.")  # fmt: skip
                yield "key_prefix", words % other
                break
        if before is None or not Record.objects.filter(policy_id=row.pk).exists():
            return
        # Compare here: for MariaDB's collation “A” and “a” are equal, but in the CRM they are
        # different keys.
        if row.key_prefix != before.row.key_prefix:
            words = _("Records were sent under “%s”: with another prefix all of them would be made "
                      "a second time.")  # fmt: skip
            yield "key_prefix", words % before.row.key_prefix
        # People who are limited to a policy's system may act on all its records, also by bulk jobs.
        if row.biz_id not in (None, before.row.biz_id):
            words = _("Records of %s exist: people who are limited to the new system could act on "
                      "them. Leave it as it is, or empty for all systems.")  # fmt: skip
            yield "biz", words % (before.row.biz or _("all systems"))
