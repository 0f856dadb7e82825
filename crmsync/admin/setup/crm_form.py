"""The form of a CRM, the help with the settings of its kind, and the addresses in its settings:
stored credentials serve only there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Annotated, Any, get_args, get_origin

import msgspec
from django import forms
from django.template.loader import render_to_string
from django.utils.functional import lazy
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from crmsync import setup_rules
from crmsync.adapters.base import AdapterSettings, CRMAdapter
from crmsync.adapters.registry import registry
from crmsync.models import Crm
from crmsync.models.crms import default_retry_seconds, validate_retry_seconds
from msgplatform.admin import Select
from msgplatform.admin.fields import ObjectField, SecretObjectField, WaitsField, each
from msgplatform.core import sandbox
from msgplatform.core.fields import Unreadable

_HTTP = {
    "url": "https://crm.example.com/api/leads",
    "headers": {"Authorization": "Bearer {secret.token}"},
    "body": {"external_id": "{key}", "fields": "{fields}"},
    "is_upsert": True,
    "update": {
        "method": "PATCH", "url": "https://crm.example.com/api/leads/{remote_id}",
        "body": {"fields": "{fields}"},
    },
    "delete": {"method": "DELETE", "url": "https://crm.example.com/api/leads/{remote_id}"},
    "read": {
        "url": "https://crm.example.com/api/leads?external_id={key}", "record": "items.0.fields",
        "remote_id": "items.0.id",
    },
    "read_by_id": {"url": "https://crm.example.com/api/leads/{remote_id}", "record": "fields"},
    "test": {"url": "https://crm.example.com/api/me"},
    "answer": {"remote_id": "id", "existing_id": "existing_id", "message": "message"},
}  # fmt: skip

# By the adapter's name: settings, credentials.
EXAMPLES: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "http": (_HTTP, {"token": ""}),
    "hubspot": ({"object": "contacts", "id_property": "hive_id"}, {"token": ""}),
    "salesforce": (
        {
            "login_url": "https://example.my.salesforce.com", "object": "Lead",
            "external_id": "Hive_Id__c",
        },
        {"client_id": "", "client_secret": ""},
    ),
    "sandbox": ({"space": "sandbox"}, {}),
    "sql": (
        {"table": "customer", "key_column": "id", "version_column": "version",
         "deleted_column": "is_deleted"},
        {"url": "mysql://user:password@db.example.com:3306/crm"},
    ),
    "tryton": (
        {"url": "https://tryton.example.com", "database": "crm", "user": "msgplatform",
         "model": "party.party", "key_field": "code"},
        {"password": ""},
    ),
}  # fmt: skip


_CODE = re.compile(r"`([^`]+)`")
# Lists show these kinds under other titles, since theirs are made for sentences: “The database
# refuses …”.
_GENERIC = {
    "sql": _("Any SQL database"),
    "http": _("Any HTTP/JSON interface"),
    "sandbox": _("Sandbox: keeps what it gets for an hour"),
}


def kinds() -> list[tuple[str, str]]:
    """The adapters that can be used, as choices of a select."""
    adapters = registry().adapters
    names = [name for name in adapters if name != Crm.SANDBOX or sandbox.is_on()]
    return [("", "---------"), *((name, kind_title(name)) for name in names)]


def kind_title(name: str) -> str:
    """The title of a kind in lists."""
    kind = registry().adapters.get(name)
    return str(_GENERIC.get(name) or (kind.title if kind else name))


def broken_kinds() -> str:
    """The adapters that cannot be used, each with the reason."""
    lines = [
        gettext("%(name)s cannot be used: %(reason)s") % {"name": name, "reason": reason}
        for name, reason in registry().broken.items()
    ]
    return mark_safe("<br>".join(map(escape, lines)))  # noqa: S308 - escaped


def settings_help() -> SafeString:
    """The settings and credentials of each kind, folded; the page opens the chosen one."""
    common = AdapterSettings.__struct_fields__
    kind_rows = []
    for name, kind in registry().adapters.items():
        # A kind's own settings come first, then those that every kind has.
        settings = sorted(_rows(kind.Settings), key=lambda row: row["name"] in common)
        # The HTTP interface's credentials have any names, as its note says.
        secrets = [f.name for f in msgspec.structs.fields(kind.Credentials) if f.type is str]
        kind_rows.append({
            "name": name, "title": kind_title(name), "settings": settings,
            "credentials": secrets, "notes": _notes(kind),
            "example": [json.dumps(part, indent=2) for part in EXAMPLES.get(name, ())],
        })  # fmt: skip
    return render_to_string("admin/crmsync/settings_help.html", {"kinds": kind_rows})


class CrmForm(forms.ModelForm):  # type: ignore[type-arg]  # it takes none at run time
    adapter = forms.ChoiceField(
        label=_("Kind"), choices=kinds, widget=Select, help_text=lazy(broken_kinds, str)()
    )
    settings = ObjectField(label=_("Settings"), help_text=lazy(settings_help, str)())
    credentials = SecretObjectField(
        label=_("Credentials"),
        rows=4,
        help_text=_(
            'As JSON: {"token": "…"}. Stored encrypted. For another account or database add '
            "another CRM: the records of this one have ids of the present account."
        ),
    )
    retry_seconds = WaitsField(
        check=each(validate_retry_seconds),
        initial=default_retry_seconds,
        label=_("Waits before another try"),
        help_text=_(
            "One wait on each line, before each try after the first: 10 s, 5 min. When the last "
            "try fails too, the record is dead and waits in the recovery log for a person."
        ),
    )

    class Meta:
        model = Crm
        fields = ["name", "adapter", "enabled", "settings", "credentials", "concurrency",
                  "retry_seconds"]  # fmt: skip
        help_texts = {
            "name": _("Names its queues, such as crm-main-sales; cannot be changed later."),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        credentials = self.fields.get("credentials")
        if isinstance(credentials, SecretObjectField) and self.instance.pk:
            credentials_value = Crm._meta.get_field("credentials").value_from_object(self.instance)
            names = [] if isinstance(credentials_value, Unreadable) else sorted(credentials_value)
            credentials.keep(
                credentials_value, gettext("Set: %s.") % ", ".join(names) if names else ""
            )
        self.initial.pop("credentials", None)

    def clean_retry_seconds(self) -> Any:
        waits = self.cleaned_data["retry_seconds"]
        validate_retry_seconds(waits)
        return waits

    def clean(self) -> dict[str, Any]:
        form_values = super().clean() or {}
        row = copy(self.instance)  # the form's own row must not change before it is valid
        for name, value in form_values.items():
            setattr(row, name, value)
        if not (row.adapter and {"settings", "credentials"} <= form_values.keys()):
            return form_values
        faults = list(setup_rules.crm_faults(row))
        if self.instance.pk and "credentials" not in self.changed_data:
            before = Crm.objects.get(pk=self.instance.pk)
            faults += setup_rules.kept_credentials_faults(row, before.adapter, before.settings)
        for name, sentence in faults:
            self.add_error(name if name in self.fields else None, sentence)
        return form_values


def _rows(kind: type[msgspec.Struct]) -> Iterable[Mapping[str, str]]:
    """Name, type and default of each setting."""
    for field in msgspec.structs.fields(kind):
        default = field.default
        if default is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        if isinstance(default, msgspec.Struct):
            default = {}
        default_text = "" if field.required else msgspec.json.encode(default).decode()
        yield {"name": field.name, "type": _describe_type(field.type), "default": default_text}


def _describe_type(annotation: Any) -> str:
    """A Python type in words."""
    if get_origin(annotation) is Annotated:
        annotation, *_limits = get_args(annotation)
    names = {
        str: gettext("text"), int: gettext("a number"), float: gettext("a number"),
        bool: gettext("true or false"), Any: gettext("anything"),
    }  # fmt: skip
    if annotation in names:
        return names[annotation]
    if inner := _struct_in(annotation):
        return gettext("an object with %s") % ", ".join(inner.__struct_fields__)
    if (get_origin(annotation) or annotation) in (list, tuple, Sequence):
        return gettext("a list")
    return gettext("an object")


def _struct_in(annotation: Any) -> type[msgspec.Struct] | None:
    """The class of the settings inside a setting; None when it holds a plain value."""
    classes = [each for each in (annotation, *get_args(annotation)) if isinstance(each, type)]
    return next((each for each in classes if issubclass(each, msgspec.Struct)), None)


def _notes(kind: type[CRMAdapter]) -> list[tuple[str, SafeString]]:
    """The docstrings of the settings, of those inside them (with their names) and of the
    credentials."""
    names_by_struct: dict[Any, list[str]] = {kind.Settings: []}
    for field in msgspec.structs.fields(kind.Settings):
        if inner := _struct_in(field.type):
            names_by_struct.setdefault(inner, []).append(field.name)
    names_by_struct[kind.Credentials] = [gettext("credentials")]
    notes: list[tuple[str, SafeString]] = []
    for struct, names in names_by_struct.items():
        # By `vars`: a class without a docstring would show that of its parent.
        if text := " ".join((vars(struct).get("__doc__") or "").split()):
            prose = mark_safe(_CODE.sub(r"<code>\1</code>", escape(text)))  # noqa: S308 - escaped
            notes.append((", ".join(names), prose))
    return notes
