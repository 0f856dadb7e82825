"""The kinds of CRMs in a form, and the help with the settings of each."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, get_args, get_origin

import msgspec
from django import forms
from django.template.loader import render_to_string
from django.utils.functional import lazy
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext, gettext_lazy as _

from crmsync.adapters.base import AdapterSettings, CRMAdapter
from crmsync.adapters.registry import registry
from crmsync.models import Crm
from msgplatform.core import sandbox
from msgplatform.doors.admin import Select

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

# Adapter's name → settings, credentials.
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
# Lists show these kinds under shorter titles. The adapters' own titles are made for sentences: “The
# database refuses …”.
_GENERIC = {
    "sql": _("Any SQL database"),
    "http": _("Any HTTP/JSON interface"),
    "sandbox": _("Sandbox: keeps what it gets for an hour"),
}


def kinds() -> list[tuple[str, str]]:
    """The adapters that can be used, as choices of a select."""
    names = [name for name in registry().adapters if name != Crm.SANDBOX or sandbox.is_on()]
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


class KindField(forms.ChoiceField):
    def __init__(self, **options: Any) -> None:
        help_text = lazy(broken_kinds, str)()
        super().__init__(**{**options, "help_text": help_text}, choices=kinds, widget=Select)


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
    classes = [part for part in (annotation, *get_args(annotation)) if isinstance(part, type)]
    return next((part for part in classes if issubclass(part, msgspec.Struct)), None)


def _notes(kind: type[CRMAdapter]) -> list[tuple[str, SafeString]]:
    """The docstrings of the settings, of settings inside them (with their names) and of the
    credentials."""
    names_by_struct: dict[Any, list[str]] = {kind.Settings: []}
    for field in msgspec.structs.fields(kind.Settings):
        if inner := _struct_in(field.type):
            names_by_struct.setdefault(inner, []).append(field.name)
    names_by_struct[kind.Credentials] = [gettext("credentials")]
    notes: list[tuple[str, SafeString]] = []
    for struct, names in names_by_struct.items():
        # `vars` leaves out the docstring of a parent class.
        if text := vars(struct).get("__doc__"):
            prose = _CODE.sub(r"<code>\1</code>", escape(gettext(text)))
            notes.append((", ".join(names), mark_safe(prose)))  # noqa: S308 - escaped
    return notes
