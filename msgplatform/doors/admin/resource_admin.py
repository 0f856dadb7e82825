"""The console's form of what people set up, made from its `Resource`.

The resource says which fields are in which group, the texts, the refusals, the fixed fields, and
whether rows can be deleted. A subclass adds lists, cells and widgets.
"""

from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from typing import Any, ClassVar

from django import forms
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.text import capfirst

from msgplatform.core.errors import Temporary
from msgplatform.doors.admin import fields
from msgplatform.doors.admin.base import ModelAdmin, with_controls_check
from msgplatform.setup import fields as json_fields
from msgplatform.setup.declaration import Before
from msgplatform.setup.fields import fields_of
from msgplatform.setup.platform_file import kinds
from msgplatform.setup.resource import Resource


class ResourceForm(forms.ModelForm):  # type: ignore[type-arg]  # it takes none at run time
    """Asks the resource for its faults, and sends no stored secret to a browser."""

    resource: Resource  # the admin sets it

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in self.resource.secret_fields & self.fields.keys():
            field: Any = self.fields[name]
            if isinstance(field, fields.WriteOnly):
                if self.instance.pk:
                    column = self.instance._meta.get_field(name)
                    text = self.resource.secret_text(self.instance, name)
                    field.keep(column.value_from_object(self.instance), text)
                self.initial.pop(name, None)

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        checked_names = self.resource.checked_fields
        names = self.fields.keys() if checked_names is None else checked_names & self.fields.keys()
        if names - values.keys():  # a field without a valid value reports that itself
            return values
        row = copy(self.instance)  # the form's own row must not change while it is invalid
        is_stored = self.instance.pk is not None
        columns = {column.name for column in row._meta.concrete_fields}
        # A value that is not saved stays as it is stored: the form cuts a time's microseconds.
        for name in columns.intersection(values, self.changed_data if is_stored else values):
            setattr(row, name, values[name])
        relations = {relation.name for relation in row._meta.many_to_many}
        self.resource.related = {name: values[name] for name in relations & values.keys()}
        if is_stored and self.changed_data == ["enabled"] and not values["enabled"]:
            return values  # it needs no correction to be switched off
        before = Before(self.instance, frozenset(self.kept_secrets())) if is_stored else None
        invalid_names = {*self.errors}
        try:
            faults = list(self.resource.faults(row, before))
        except Temporary as error:  # a server that the check needs does not answer
            faults = [("", str(error))]
        for name, sentence in faults:
            if name not in invalid_names:
                self.add_error(name if name in self.fields else None, str(sentence))
        return values

    def kept_secrets(self) -> set[str]:
        return {name for name in self.resource.secret_fields if name not in self.changed_data}


class ResourceAdmin(ModelAdmin):
    resource: ClassVar[type[Resource]]
    form = ResourceForm
    # True if people may delete rows. None: only if DELETE deletes and does not switch off.
    may_delete: bool | None = None
    # Form fields of the admin's own, by column. They get `label`, `help_text` and `required`.
    form_fields: Mapping[str, Callable[..., forms.Field]] = {}
    # Further arguments of form fields, such as a widget.
    field_options: Mapping[str, Mapping[str, Any]] = {}

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        this: Any = self
        groups = [(title, {"fields": names}) for title, names in self.resource.groups]
        this.fieldsets = groups or None
        if lookup := self.resource.system_lookup:
            self.system_lookup = lookup.rpartition("__")[0] or "pk"

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any
    ) -> Any:
        form: Any = super().get_form(request, obj, change, **kwargs)
        form.resource = self.resource(request.user.get_username())  # a class of this request
        if obj is not None and not self.has_change_permission(request, obj):
            # Django leaves out all fields, and with them the widgets that show lists.
            for column in self.opts.concrete_fields:
                if _form_field(self.resource, column) or column.name in self.form_fields:
                    form.base_fields[column.name] = self.formfield_for_dbfield(column, request)
        return form

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        options = self.field_options.get(db_field.name, {})
        make_field = self.form_fields.get(db_field.name) or _form_field(self.resource, db_field)
        if make_field is None:
            return super().formfield_for_dbfield(db_field, request, **kwargs, **options)
        defaults = {
            "label": capfirst(db_field.verbose_name), "required": not db_field.blank,
            "help_text": db_field.help_text,
        }  # fmt: skip
        if (default := db_field.get_default()) not in ({}, [], "", None):
            defaults["initial"] = default
        return with_controls_check(make_field(**{**defaults, **options}))

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        fixed_names = list(self.resource.fixed_fields(obj)) if obj else []
        # A file finds an object by its address: under another one the next apply would make a
        # second object beside it.
        kept_object = kinds.kept_object(obj) if obj else None
        for kind in kinds.sections()[kept_object.section] if kept_object else ():
            fixed_names += [lookup.partition("__")[0] for lookup in kind.address_lookups.values()]
        return [*super().get_readonly_fields(request, obj), *fixed_names]

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        is_locked = obj is not None and bool(self.resource.lock_reason(obj))
        return not is_locked and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        is_deleted = self.resource.is_deleted if self.may_delete is None else self.may_delete
        if not is_deleted or (obj is not None and self.resource.removal_fault(obj)):
            return False
        return super().has_delete_permission(request, obj)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        dependent_names = form.resource.set_dependent_fields(obj, form.changed_data)
        super().save_model(request, obj, form, change)
        if change and dependent_names:
            obj.save(update_fields=dependent_names)
        transaction.on_commit(self.resource.forget_cached)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        super().delete_model(request, obj)
        transaction.on_commit(self.resource.forget_cached)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        super().delete_queryset(request, queryset)
        transaction.on_commit(self.resource.forget_cached)

    def audit_changes(self, form: Any, change: bool) -> dict[str, Any]:
        return {
            name: [
                value if value is None else self.resource.audit_value(name, value) for value in pair
            ]
            for name, pair in super().audit_changes(form, change).items()
        }

    def audit_target(self, obj: Any) -> str:
        return self.resource.title(obj)

    def audit_action_name(self, what: str) -> str:
        return f"{self.resource.audit_word()}_{what}"


def _form_field(resource: type[Resource], column: Any) -> Callable[..., forms.Field] | None:
    """A function that makes the form's field, if the JSON field differs from Django's."""
    by_column = {field.source: field for field in fields_of(resource.serializer_class).values()}
    json_field = by_column.get(column.name)
    if isinstance(json_field, json_fields.TextListField):
        return partial(fields.LinesField, check=fields.item_check(*column.validators))
    if isinstance(json_field, json_fields.WaitsField):
        return partial(fields.WaitsField, check=fields.item_check(*column.validators))
    if isinstance(json_field, json_fields.ObjectField):
        return fields.SecretObjectField if json_field.write_only else fields.ObjectField
    if isinstance(json_field, json_fields.SecretTextField):
        # Required, although the column may be empty: an empty field keeps the stored value.
        fixed: dict[str, Any] = {"required": True, "max_length": json_field.max_length}
        return lambda **options: fields.SecretTextField(**{**options, **fixed})
    return None
