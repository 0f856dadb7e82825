"""The form of a CRM, and the help with the settings of its kind."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, get_args, get_origin

import msgspec
from django import forms
from django.core.exceptions import ValidationError
from django.template.loader import render_to_string
from django.utils.functional import lazy
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from crmsync.adapters.base import AdapterSettings, CRMAdapter
from crmsync.adapters.registry import open_adapter, registry
from crmsync.models import Crm
from crmsync.models.crms import default_retry_seconds, validate_retry_seconds
from msgplatform.admin import Select
from msgplatform.admin.fields import ObjectField, SecretObjectField, WaitsField, each
from msgplatform.core.errors import InvalidInput
from msgplatform.core.fields import Unreadable

_CODE = re.compile(r"`([^`]+)`")
# Kinds that are no product, whose titles stand in sentences: “The database refuses …”.
_GENERIC = {"sql": _("Any SQL database"), "http": _("Any HTTP/JSON interface")}


def kinds() -> list[tuple[str, str]]:
    """The adapters that can be used, for a select."""
    found = registry().adapters
    return [("", "---------"), *((name, kind_title(name)) for name in found)]


def kind_title(name: str) -> str:
    """As lists show it."""
    kind = registry().adapters.get(name)
    return str(_GENERIC.get(name) or (kind.title if kind else name))


def broken_kinds() -> str:
    """The adapters that cannot be used, with the reason."""
    lines = [
        gettext("%(name)s cannot be used: %(reason)s") % {"name": name, "reason": reason}
        for name, reason in registry().broken.items()
    ]
    return mark_safe("<br>".join(map(escape, lines)))  # noqa: S308 - escaped


def settings_help() -> SafeString:
    """For each kind its settings and credentials, folded; the page opens the chosen one."""
    shown = [
        {
            "name": name,
            "title": kind_title(name),
            "settings": _own_first(kind.Settings),
            # Those of the HTTP interface have any names, as its note says.
            "credentials": [
                f.name for f in msgspec.structs.fields(kind.Credentials) if f.type is str
            ],
            "notes": _notes(kind),
        }
        for name, kind in registry().adapters.items()
    ]
    return render_to_string("admin/crmsync/settings_help.html", {"kinds": shown})


class CrmForm(forms.ModelForm):  # type: ignore[type-arg]  # it takes none at run time
    adapter = forms.ChoiceField(
        label=_("Kind"), choices=kinds, widget=Select, help_text=lazy(broken_kinds, str)()
    )
    settings = ObjectField(label=_("Settings"), help_text=lazy(settings_help, str)())
    credentials = SecretObjectField(
        label=_("Credentials"), rows=4, help_text=_('As JSON: {"token": "…"}. Stored encrypted.')
    )
    retry_seconds = WaitsField(
        check=each(validate_retry_seconds),
        initial=default_retry_seconds,
        label=_("Waits before another try"),
        help_text=_(
            "One a line, one for each try after the first: 10 s, 5 min. A record that fails once "
            "more is dead and waits in the recovery log for a person."
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
            stored = Crm._meta.get_field("credentials").value_from_object(self.instance)
            names = [] if isinstance(stored, Unreadable) else sorted(stored)
            credentials.keep(stored, gettext("Set: %s.") % ", ".join(names) if names else "")
        self.initial.pop("credentials", None)

    def clean_retry_seconds(self) -> Any:
        waits = self.cleaned_data["retry_seconds"]
        validate_retry_seconds(waits)
        return waits

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        name = cleaned.get("adapter") or self.instance.adapter
        if name and "settings" in cleaned and "credentials" in cleaned:
            try:
                open_adapter(name, cleaned["settings"], cleaned["credentials"]).close()
            except InvalidInput as error:
                field = _field_of(name, error)
                self.add_error(field if field in self.fields else None, ValidationError(str(error)))
        return cleaned


def _field_of(adapter: str, error: InvalidInput) -> str:
    """The form's field that an adapter complains about."""
    kind = registry().adapters.get(adapter)
    if kind is None:
        return "adapter"
    named = error.field.partition(".")[0].partition("[")[0]
    return "credentials" if _is_secret(kind, named) else "settings"


def _is_secret(kind: type[CRMAdapter], name: str) -> bool:
    own = set(kind.Credentials.__struct_fields__) | {"database", "credentials"}
    return name in own and name not in kind.Settings.__struct_fields__


def _own_first(kind: type[msgspec.Struct]) -> list[Mapping[str, str]]:
    """What every kind has comes last."""
    return sorted(_rows(kind), key=lambda row: row["name"] in AdapterSettings.__struct_fields__)


def _rows(kind: type[msgspec.Struct]) -> Iterable[Mapping[str, str]]:
    """Name, type and default of each setting."""
    for field in msgspec.structs.fields(kind):
        default = field.default
        if default is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        if isinstance(default, msgspec.Struct):
            default = {}
        known = "" if field.required else msgspec.json.encode(default).decode()
        yield {"name": field.name, "type": _words(field.type), "default": known}


def _words(kind: Any) -> str:
    """A type as people say it."""
    if get_origin(kind) is Annotated:
        kind, *_limits = get_args(kind)
    names = {
        str: gettext("text"), int: gettext("a number"), float: gettext("a number"),
        bool: gettext("true or false"), Any: gettext("anything"),
    }  # fmt: skip
    if kind in names:
        return names[kind]
    if inner := _struct_in(kind):
        return gettext("an object with %s") % ", ".join(inner.__struct_fields__)
    origin = str(get_origin(kind) or kind)
    if "Sequence" in origin or "list" in origin:
        return gettext("a list")
    return gettext("an object")


def _struct_in(kind: Any) -> type[msgspec.Struct] | None:
    """The settings that a setting holds itself, if it does."""
    found = [each for each in (kind, *get_args(kind)) if isinstance(each, type)]
    return next((each for each in found if issubclass(each, msgspec.Struct)), None)


def _notes(kind: type[CRMAdapter]) -> list[tuple[str, SafeString]]:
    """What the classes say: of the settings, of those that are objects (with their names), of the
    credentials."""
    named: dict[Any, list[str]] = {kind.Settings: []}
    for field in msgspec.structs.fields(kind.Settings):
        if inner := _struct_in(field.type):
            named.setdefault(inner, []).append(field.name)
    named[kind.Credentials] = [gettext("credentials")]
    notes = [(", ".join(names), _prose(each)) for each, names in named.items()]
    return [(names, prose) for names, prose in notes if prose]


def _prose(kind: type[msgspec.Struct]) -> SafeString:
    """What the class says of its settings, when it is its own text."""
    text = " ".join((vars(kind).get("__doc__") or "").split())
    return mark_safe(_CODE.sub(r"<code>\1</code>", escape(text)))  # noqa: S308 - escaped
