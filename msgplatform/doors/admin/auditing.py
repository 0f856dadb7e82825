"""The audit log: who did what in the console, field by field, before and after."""

from collections.abc import Iterable, Mapping
from typing import Any

from django import forms
from django.apps import apps
from django.db import models
from django.http import HttpRequest

from msgplatform.core.secrets.fields import encrypted_names
from msgplatform.models import AuditLog

# The words of the log for a secret value, and for no value.
SECRET, NOTHING = "•••", None
_MAX_VALUE_CHARS = 2000  # a mapping may have pages
_MAX_ROWS = 200  # maximum rows of a relation


def hidden_fields(model: type[models.Model] | None = None) -> frozenset[str]:
    """Columns of this model, or of all models, that hold a secret or its hash."""
    classes = apps.get_models() if model is None else [model]
    return frozenset({"hash", "password"}).union(*map(encrypted_names, classes))


def audit(request: HttpRequest, action: str, target: str, **detail: Any) -> None:
    """Store an action with the person. `changes`: field → its values before and after."""
    AuditLog.record(request.user.get_username(), action, target, **detail)


def changes_of(entry: AuditLog) -> dict[str, list[Any]]:
    """Field → [before, after]; older entries have none."""
    changes = entry.detail.get("changes") if isinstance(entry.detail, dict) else None
    pairs = changes.items() if isinstance(changes, dict) else ()
    return {name: pair for name, pair in pairs if isinstance(pair, list) and len(pair) == 2}


def of_form(form: forms.BaseForm, change: bool) -> dict[str, list[Any]]:
    """The changes of a saved form: field → [before, after]. For a new row these are all values that
    are not empty. For a secret the log says only that it has changed."""
    changes = {}
    for name in form.changed_data if change else form.fields:
        field = form.fields[name]
        before = _as_json(form.get_initial_for_field(field, name), field) if change else NOTHING
        after = _as_json(form.cleaned_data.get(name), field)
        if is_secret(name, form):
            before, after = (SECRET if change else NOTHING), SECRET
        if change or after not in (NOTHING, "", [], {}):
            changes[name] = [before, after]
    return changes


def is_secret(name: str, form: forms.BaseForm) -> bool:
    """True if the field's value is never shown."""
    field = form.fields[name]
    is_password = isinstance(field.widget, forms.PasswordInput)
    model = type(form.instance) if isinstance(form, forms.ModelForm) else None
    return name in hidden_fields(model) or is_password or getattr(field, "is_secret", False)


def initial_value(form: forms.BaseForm, name: str) -> Any:
    """The stored value of a field as the log would have it; the field must not be a secret."""
    field = form.fields[name]
    return _as_json(form.get_initial_for_field(field, name), field)


def of_formset(formset: Any) -> dict[str, list[Any]]:
    """The changes of a saved formset of other rows (inlines), one entry for each row."""
    changes: dict[str, list[Any]] = {}
    for row in formset.new_objects:
        changes[_row_name(row)] = [NOTHING, str(row)]
    for row, names in formset.changed_objects:
        changes[_row_name(row)] = [NOTHING, ", ".join(names)]
    for row in formset.deleted_objects:
        changes[_row_name(row)] = [str(row), NOTHING]
    return changes


def _row_name(row: models.Model) -> str:
    return f"{row._meta.model_name} {row.pk or ''}".strip()


def _as_json(value: Any, field: forms.Field) -> Any:
    """A form's value as JSON. Rows are texts."""
    if isinstance(field, forms.ModelChoiceField):
        # The initial value is a key or a list of rows, the cleaned value a row or a queryset.
        if value is None or isinstance(value, models.Model):
            return None if value is None else str(value)
        if isinstance(value, Iterable) and not isinstance(value, str):
            return sorted(str(row) for row in list(value)[:_MAX_ROWS])
        rows: Any = field.queryset
        row = rows.model._default_manager.filter(pk=value).first() if value != "" else None
        return None if row is None else str(row)
    if isinstance(value, Mapping):
        return {str(name): _cut(part) for name, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_cut(part) for part in value]
    return _cut(value)


def _cut(value: Any) -> Any:
    """Short texts and numbers unchanged, anything else as text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(value)
    return text if len(text) <= _MAX_VALUE_CHARS else f"{text[:_MAX_VALUE_CHARS]}…"
