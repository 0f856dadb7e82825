"""When two people change a row at once, the second one is told before anything is saved.

A form has a digest of each field's stored value from when its page was made. If a stored value has
changed at save, nothing is saved. The form comes back with what the person typed, and with the
stored values in the other fields. It shows the differences, and who made them, from the audit log.
Saving that page then works. A POST without digests, such as a script's, is not compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from django import forms
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.crypto import salted_hmac
from django.utils.translation import gettext as _

from msgplatform.core.characters import unify_line_ends
from msgplatform.doors.admin import auditing
from msgplatform.models import AuditLog
from msgplatform.setup.platform_file import kinds

if TYPE_CHECKING:  # unfold's classes are Django's with additions, but without types
    from django.contrib import admin

    UnfoldModelAdmin = admin.ModelAdmin[Any]
else:
    from unfold.admin import ModelAdmin as UnfoldModelAdmin

SEEN = "_seen"  # the hidden field
_DIGITS = 12
_MAX_ENTRIES = 20  # newest entries of the audit log that are read


class Difference(msgspec.Struct, frozen=True):
    """A field that somebody else has changed. `before` and `after` are None for a secret; without
    an entry in the audit log `actor` is '' and `before` is None."""

    label: str
    before: str | None
    after: str | None
    actor: str = ""
    at: datetime | None = None


class Seen(msgspec.Struct, frozen=True):
    """The state of a row as a page shows it: its last entry in the audit log, and a digest of each
    field."""

    entry: int
    digests: Mapping[str, str]

    @classmethod
    def read(cls, text: str) -> Seen | None:
        """None for a text that no page of the console has sent."""
        try:
            return msgspec.json.decode(text, type=cls)
        except (msgspec.DecodeError, UnicodeError):
            return None

    def changed_names(self, now: Seen) -> list[str]:
        return [name for name, digest in now.digests.items() if self.digests.get(name) != digest]


def seen_now(row: Model, form_class: type[forms.ModelForm[Any]], audit_target: str) -> Seen:
    """The row as it is stored, in the fields that the form can change."""
    editable = {name for name, field in form_class.base_fields.items() if not field.disabled}
    columns = [field for field in row._meta.concrete_fields if field.name in editable]
    relations = [field for field in row._meta.many_to_many if field.name in editable]
    values = {column.name: column.value_from_object(row) for column in columns}
    for relation in relations:
        values[relation.name] = sorted(other.pk for other in relation.value_from_object(row))
    further_values = getattr(form_class, "further_values", None)  # fields that are no columns
    values |= further_values(row) if further_values else {}
    fields = form_class.base_fields
    digests = {name: _digest(row, name, fields.get(name), value) for name, value in values.items()}
    entries = AuditLog.objects.filter(target=audit_target[:200]).order_by("-id")
    return Seen(entries.values_list("id", flat=True).first() or 0, digests)


def _digest(row: Model, name: str, field: forms.Field | None, value: Any) -> str:
    """A digest of the value. It is keyed, so that nobody can find a secret by guessing."""
    if isinstance(value, datetime):
        value = value.astimezone(UTC)  # a form has the person's zone
    elif isinstance(value, str):
        value = unify_line_ends(value)  # a text area has unified ones
    elif isinstance(field, forms.MultipleChoiceField):
        value = sorted(value or (), key=str)  # a form has the order of its choices
    content = msgspec.json.encode(
        [row._meta.label, row.pk, name, value], enc_hook=str, order="deterministic"
    )
    return salted_hmac("admin form", content, algorithm="sha256").hexdigest()[:_DIGITS]


class ComparedForm:
    """Mixin of a form that refuses to be saved over changes that its page did not show."""

    row: Model  # the stored row, locked during a POST
    now: Seen
    before: Seen | None  # None: the form is not compared
    audit_target: str
    audit_prefix: str
    differences: Sequence[Difference] = ()

    @property
    def seen(self) -> str:
        """The value of the hidden field."""
        return msgspec.json.encode(self.now).decode()

    def clean(self) -> Any:
        form: Any = self
        values = super().clean()  # type: ignore[misc]  # the form's
        changed_names = self.before.changed_names(self.now) if self.before else []
        if self.before is None or not changed_names or not form.has_changed():
            return values  # a form that is sent twice changes nothing the second time
        rows = AuditLog.objects.filter(target=self.audit_target[:200], id__gt=self.before.entry)
        rows = rows.filter(action__startswith=self.audit_prefix).order_by("-id")
        entries = list(rows[:_MAX_ENTRIES])[::-1]
        self.differences = list(_differences(form, changed_names, entries))
        text = _(
            "Somebody else changed this while you had it open, and nothing was saved. What you "
            "typed is still in the form; fields that you had not changed have the new values. "
            "Look at it, and save it again."
        )
        has_secrets = any(auditing.is_secret(name, form) for name in form.changed_data)
        form.add_error(None, text + " " + _("Enter secrets once more.") if has_secrets else text)
        form.data = form.data.copy()
        for name in changed_names:
            if auditing.is_secret(name, form) or name not in form.cleaned_data:
                continue
            value = form.cleaned_data[name]
            if isinstance(value, Model):
                value = value.pk
            elif isinstance(value, QuerySet):
                value = sorted(row.pk for row in value)
            # The person has not changed the field.
            digest = _digest(self.row, name, form.fields[name], value)
            if digest == self.before.digests.get(name, ""):
                _show_stored(form, name)
        return values


class ComparedAdmin(UnfoldModelAdmin):
    """Mixin of an admin whose forms are compared."""

    change_form_template = "admin/compared_form.html"

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any
    ) -> type[forms.ModelForm[Any]]:
        """The form; on the page of a row that this person may change, a ComparedForm."""
        form = super().get_form(request, obj, change, **kwargs)
        is_page = obj is not None and self._is_change_page(request)
        if not is_page or not self.has_change_permission(request, obj):
            return form
        target = self.audit_target(obj)
        values = {
            "row": obj,
            "now": seen_now(obj, form, target),
            "before": Seen.read(request.POST.get(SEEN, "")),
            "audit_target": target,
            "audit_prefix": self.audit_action_name(""),
        }
        metaclass: Any = type(form)
        compared_class: type[forms.ModelForm[Any]] = metaclass(
            form.__name__, (ComparedForm, form), values
        )
        return compared_class

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> Any:
        """The row. It is locked while its form is saved: of two people one is the second."""
        row = super().get_object(request, object_id, from_field)
        if row is None or SEEN not in request.POST or not self._is_change_page(request):
            return row
        rows = self.model._base_manager.select_for_update().filter(pk=row.pk)
        rows.values_list("pk").first()
        return super().get_object(request, object_id, from_field)

    def render_change_form(
        self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """The page. It says so if a platform file keeps the row."""
        row = kwargs.get("obj")
        context["kept"] = None if row is None else kinds.kept_object(row)
        return super().render_change_form(request, context, *args, **kwargs)

    def audit_target(self, obj: Any) -> str:
        return str(obj)

    def audit_action_name(self, what: str) -> str:
        """An action in the audit log: for a consumer and "changed", consumer_changed."""
        return f"{self.opts.model_name}_{what}"

    def _is_change_page(self, request: HttpRequest) -> bool:
        match, name = request.resolver_match, f"{self.opts.app_label}_{self.opts.model_name}_change"
        return match is not None and match.url_name == name


def _show_stored(form: Any, name: str) -> None:
    """Put a field's stored value into the form's data."""
    field, key = form.fields[name], form.add_prefix(name)
    value = field.prepare_value(form.get_initial_for_field(field, name))
    if isinstance(field.widget, forms.MultiWidget):  # such as a date and a time
        widget: Any = field.widget
        parts = zip(widget.widgets_names, widget.widgets, widget.decompress(value), strict=True)
        for suffix, part_widget, part in parts:
            form.data[f"{key}{suffix}"] = part_widget.format_value(part) or ""
    elif isinstance(field.widget, forms.CheckboxInput):
        form.data.setlist(key, ["on"] if value else [])
    elif isinstance(value, list):
        form.data.setlist(key, [str(item) for item in value])
    else:
        form.data[key] = "" if value is None else value


def _differences(
    form: Any, changed_names: Sequence[str], entries: Sequence[AuditLog]
) -> Iterator[Difference]:
    """A difference for each change of these fields in the audit log. For a field without an entry
    there, the stored value."""
    for name in changed_names:
        label = str(form.fields[name].label or name)
        is_secret = auditing.is_secret(name, form)
        logged_values = [(entry, _values(entry, name)) for entry in entries]
        changes = [(entry, values) for entry, values in logged_values if values is not None]
        for entry, values in changes:
            if is_secret or auditing.SECRET in values:
                yield Difference(label, None, None, entry.actor, entry.at)
            else:
                before, after = map(_text, values)
                yield Difference(label, before, after, entry.actor, entry.at)
        if not changes:
            value = None if is_secret else _text(auditing.initial_value(form, name))
            yield Difference(label, None, value)


def _values(entry: AuditLog, name: str) -> Sequence[Any] | None:
    """The field's value before and after, as the console or the API has written it."""
    if values := auditing.changes_of(entry).get(name):
        return values
    detail = entry.detail
    if name in detail.get("fields", ()):
        # The API logs no secrets.
        return [detail.get(part, {}).get(name, auditing.SECRET) for part in ("before", "after")]
    return None


def _text(value: Any) -> str:
    if value in (None, "", [], {}):
        return "–"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
