"""CRMs as people set them up: their connection, whose settings and credentials the adapter
checks."""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec
from django.utils.translation import gettext as _, gettext_lazy
from rest_framework import serializers

from crmsync.adapters.registry import open_adapter, registry
from crmsync.adapters.settings import addresses_in, read_settings
from crmsync.models import Crm, Policy, Record
from msgplatform.core.errors import InvalidInput, Undecryptable
from msgplatform.core.json.values import map_leaves
from msgplatform.setup.declaration import Before, Faults
from msgplatform.setup.fields import ObjectField, WaitsField, WholeSerializer
from msgplatform.setup.resource import Resource

_USER = re.compile(r"(?<=://)[^/?#\s]*@")
# A parameter of a query; the whole query if it has no names.
_PARAMETER = re.compile(r"([?&](?:[^=&#\s]*=)?)([^&#\s]*)")
# Places of a template, with the signs around them.
_PLACES = re.compile(r"(?:\{[^{}]*\}|[^\w{}])*")


class CrmSerializer(WholeSerializer):
    """A CRM with its connection."""

    settings = ObjectField(
        required=False, allow_null=True, help_text="The console's form lists those of each kind"
    )
    credentials = ObjectField(write_only=True, required=False, allow_null=True)
    credential_names = serializers.SerializerMethodField(help_text="Names of stored credentials")
    retry_seconds = WaitsField(required=False, allow_null=True)

    class Meta:
        model = Crm
        fields = ["name", "adapter", "settings", "credentials", "credential_names", "concurrency",
                  "retry_seconds", "enabled", "paused_at", "paused_because",
                  "created_at"]  # fmt: skip
        read_only_fields = ["name", "paused_at", "paused_because", "created_at"]
        notes = {
            "credentials": "Never shown: left out, the stored ones stay, unless the settings have "
            "another address; {} takes them away"
        }

    def to_representation(self, instance: Crm) -> dict[str, Any]:
        """The CRM's values. A key that is limited to business systems gets the settings without
        possible secrets."""
        values = super().to_representation(instance)
        if self.context.get("systems"):
            values["settings"] = mask_settings(values["settings"])
        return values

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
    checked_fields = frozenset({"adapter", "settings", "credentials"})
    groups = [
        (None, ["name", "adapter", "enabled"]),
        (gettext_lazy("Pace and patience"), ["concurrency", "retry_seconds"]),
        (gettext_lazy("Connection"), ["settings", "credentials"]),
    ]
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
        "Nothing is sent before a policy carries a source to it. Another kind, account or database "
        "needs a CRM of its own: the records of this one have ids of the present account."
    )

    @classmethod
    def fixed_fields(cls, row: Crm) -> Mapping[str, str]:
        """The queues are named after the CRM, and the records have ids of its kind."""
        policies = Policy.objects.filter(crm=row).values("pk")
        words = "Records have ids of the present adapter: another one needs a CRM of its own."
        has_records = Record.objects.filter(policy_id__in=policies).exists()
        return {"name": "", **({"adapter": words} if has_records else {})}

    @classmethod
    def audit_value(cls, name: str, value: Any) -> Any:
        return mask_settings(value) if name == "settings" else value

    @classmethod
    def secret_text(cls, row: Crm, name: str) -> str:
        names = CrmSerializer().get_credential_names(row)
        return _("Set: %s.") % ", ".join(names) if names else ""

    def faults(self, row: Crm, before: Before | None) -> Faults:
        """Faults that the adapter finds in its settings and credentials; and stored credentials
        that would go to an address that is not in the stored settings, or to another adapter."""
        try:
            open_adapter(row.adapter, row.settings, row.credentials).close()
        except InvalidInput as error:
            column = "adapter"
            if adapter_class := registry().adapters.get(row.adapter):
                # The value at fault is in the settings, unless only the credentials have its name.
                name = error.field.partition(".")[0].partition("[")[0]
                fields = adapter_class.Credentials.__struct_fields__
                secret_names = {*fields, "credentials", "database"}
                secret_names.difference_update(adapter_class.Settings.__struct_fields__)
                column = "credentials" if name in secret_names else "settings"
            yield column, str(error)
        if before is None or "credentials" not in before.kept_secrets or not row.credentials:
            return
        adapter, settings = before.row.adapter, before.row.settings
        if row.adapter != adapter:
            words = _("The stored credentials were entered for the adapter %s: enter them again.")
            yield "credentials", words % adapter
        new_addresses = addresses_of(row.adapter, row.settings) - addresses_of(adapter, settings)
        if new_addresses:
            words = _("The stored credentials were entered for another address: enter them again "
                      "for %(addresses)s.")  # fmt: skip
            yield "credentials", words % {"addresses": ", ".join(sorted(new_addresses))}


def mask_settings(value: Any) -> Any:
    """Settings without the possible secrets of their URLs: user and password, and the values of
    the query, except places such as {key}."""

    def mask_query(match: re.Match[str]) -> str:
        return match[0] if _PLACES.fullmatch(match[2]) else f"{match[1]}•••"

    def mask(text: str) -> str:
        return _PARAMETER.sub(mask_query, _USER.sub("", text)) if "://" in text else text

    return map_leaves(value, str, mask)


def addresses_of(adapter: str, settings: Mapping[str, Any]) -> frozenset[str]:
    """`addresses_in` the settings and the adapter's defaults."""
    all_settings: Any = dict(settings)
    with suppress(InvalidInput):  # the adapter is not installed, or refuses the settings
        all_settings = msgspec.to_builtins(
            read_settings(registry().get(adapter).Settings, settings)
        )
    return frozenset(addresses_in(all_settings))
