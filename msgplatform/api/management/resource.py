"""One thing that people set up, by the name that it has: read, created or replaced, deleted.

The management API (`resources.py`) shows these over HTTP. A `put` describes the whole thing: what
it leaves out, or gives as null, has its default afterwards, and the same `put` twice changes
nothing. The model alone (`full_clean`) says which values are valid, so that the console's forms
and the API agree.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec
from django.db import IntegrityError, transaction
from django.db.models import Field, Model, QuerySet
from django.http import Http404
from django.utils.crypto import salted_hmac
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers

from msgplatform.api.management import fields
from msgplatform.core.errors import Changed
from msgplatform.core.json.values import is_same
from msgplatform.models import AuditLog, Biz


class WholeSerializer(serializers.ModelSerializer[Any]):
    """A body that describes the whole thing. Unknown fields are refused; those that only the
    platform writes may be sent back as they were read, and are left alone."""

    serializer_field_mapping = fields.OF_MODELS
    serializer_related_field = fields.NamedField

    def build_standard_field(self, field_name: str, model_field: Any) -> Any:
        field_class, options = super().build_standard_field(field_name, model_field)
        if not options.get("required", True) and not options.get("read_only"):
            options["allow_null"] = True  # as good as leaving it out
        return field_class, options

    def build_relational_field(self, field_name: str, relation_info: Any) -> Any:
        field_class, options = super().build_relational_field(field_name, relation_info)
        options.pop("view_name", None)
        if not options.get("required", True):
            options["allow_null"] = True
        return field_class, options

    def to_internal_value(self, data: Any) -> Any:
        fields.check_known(self, data)
        if isinstance(data, Mapping):
            data = {name: value for name, value in data.items() if value is not None}
        return super().to_internal_value(data)


@dataclass(frozen=True)
class Stored:
    """The answer to a `put`. `once` has fields that are shown this once, such as a secret."""

    row: Any
    is_new: bool = False
    changed_names: Sequence[str] = ()
    once: Mapping[str, Any] = field(default_factory=dict)


def record(actor: str, action: str, target: str, **detail: Any) -> None:
    """Store an action in the audit log."""
    AuditLog.objects.create(
        actor=actor,
        action=action,
        target=target[:200],
        detail=msgspec.to_builtins(detail, enc_hook=str),
    )


def system_of(name: str) -> Biz:
    """The business system of this name. Raises Http404."""
    row = Biz.objects.filter(name=name).first()
    if row is None:
        raise Http404("There is no such business system; create it first.")
    return row


class Resource:
    """Things of one kind. An instance stands for one of them, which its address names.

    A subclass sets the class attributes, and implements `rows`, `new` and `remove`. `actor` is who
    acts, for the audit log.
    """

    noun: ClassVar[str]  # "consumer", for sentences
    nouns: ClassVar[str]  # "consumers": the group of its operations
    list_path: ClassVar[str]  # "consumers"; '': another kind's list has them
    path: ClassVar[str]  # "consumers/<slug:name>"
    audit_noun: ClassVar[str] = ""  # that begins the audit log's actions; '': `noun`
    scope: ClassVar[str]  # that a management key needs
    model: ClassVar[type[Model]]
    serializer_class: ClassVar[type[serializers.BaseSerializer[Any]]]
    # Of the answer to the PUT that creates one, when it shows more.
    created_serializer_class: ClassVar[type[serializers.BaseSerializer[Any]] | None] = None
    secret_fields: ClassVar[frozenset[str]] = frozenset()  # never written to the audit log
    # Fields that stay as they are stored when a body leaves them out; secrets always do.
    kept_fields: ClassVar[frozenset[str]] = frozenset()

    # Texts of the OpenAPI document.
    example: ClassVar[Mapping[str, Any]]
    on_delete: ClassVar[str]
    notes: ClassVar[str] = ""
    list_notes: ClassVar[str] = "By name."
    parameters: ClassVar[Sequence[OpenApiParameter]] = ()  # parts of the address that need a text
    conflicts: ClassVar[tuple[str, ...]] = ()  # methods that may be answered with 409

    def __init__(self, actor: str, **address: str) -> None:
        self.actor, self.address = actor, address

    # -- what a subclass says --------------------------------------------------------------------
    @property
    def name(self) -> str:
        return self.address["name"]

    def rows(self) -> QuerySet[Any]:
        """The row that the address names, or none."""
        return self.model._default_manager.filter(name=self.name)

    def new(self) -> Any:
        """A row for the address, with its defaults, which is not saved yet."""
        return self.model(name=self.name)

    def remove(self, row: Any) -> None:
        """Do what DELETE means to the row, which is locked, and write the audit log."""
        raise NotImplementedError

    def title(self, row: Any) -> str:
        """The row's name in the audit log."""
        return str(row.name)

    def after_save(self, row: Any, is_new: bool) -> Mapping[str, Any]:
        """Called in the transaction that stored a change; returns what is shown this once."""
        return {}

    def set_dependent_fields(self, row: Any, names: Sequence[str]) -> Sequence[str]:
        """Set further fields that follow from a change; returns their names."""
        return ()

    def check_change(
        self, row: Any, before: Mapping[str, Any], sent_names: Collection[str]
    ) -> None:
        """Raises an error for a change that the row must not have, which is not saved yet. `before`
        are its values as they are stored, `sent_names` the fields that the body has."""

    def audit_value(self, name: str, value: Any) -> Any:
        """A field's value as the audit log shows it."""
        return value

    # -- what is done with one -------------------------------------------------------------------
    def get(self, for_change: bool = False) -> Any:
        """The row. Raises Http404."""
        rows = self.rows()
        row = (rows.select_for_update() if for_change else rows).first()
        if row is None:
            raise Http404("There is nothing of this name.")
        return row

    def put(self, data: Any, version: str = "") -> Stored:
        """Make the thing as the data say. With `version`, only if it is of this version ("*": if it
        is there). Raises Changed, and ValidationErrors for wrong values."""
        try:
            return self._put(data, version)
        except IntegrityError:  # somebody else has created it meanwhile
            return self._put(data, version)

    @transaction.atomic
    def _put(self, data: Any, version: str) -> Stored:
        stored_row = self.rows().select_for_update().first()
        is_new = stored_row is None
        if version and is_new:
            raise Changed("There is nothing of this name any more.")
        row: Any = self.new() if is_new else stored_row
        version_before = "" if is_new else self.version(row)
        body: Any = self.serializer_class(row, data=data)
        body.is_valid(raise_exception=True)
        before = self.values(row)
        related = self._fill(row, body)
        row.full_clean(validate_unique=False, validate_constraints=False)
        after = self.values(row) | related
        changed_names = sorted(name for name in after if not is_same(before[name], after[name]))
        if version not in ("", "*", version_before):
            raise self.changed(before, after, changed_names)
        if not is_new and not changed_names:
            return Stored(row)
        self.check_change(row, before, body.validated_data.keys())
        also = self.set_dependent_fields(row, changed_names)
        columns = [name for name in changed_names if name not in related]
        row.save(update_fields=None if is_new else [*columns, *also])
        for name in related:
            getattr(row, name).set(body.validated_data.get(name, ()))
        once = self.after_save(row, is_new)
        self._audit_put(row, is_new, changed_names, before, after)
        return Stored(row, is_new, changed_names, once)

    @transaction.atomic
    def delete(self, version: str = "") -> None:
        """Raises Http404, and Changed when the thing is not of this version."""
        row = self.get(for_change=True)
        self.check_version(row, version)
        self.remove(row)

    def check_version(self, row: Any, version: str) -> None:
        """Raises Changed when the row is not of this version ('' and "*": any)."""
        if version not in ("", "*", self.version(row)):
            raise Changed("It was changed meanwhile: read it again.")

    def values(self, row: Any) -> dict[str, Any]:
        """The fields that a body sets; of related things the names."""
        values = {column.name: column.value_from_object(row) for column in self._columns()}
        for name in self._related_names():
            names = getattr(row, name).values_list("name", flat=True) if row.pk else ()
            values[name] = sorted(names)
        return values

    def version(self, row: Any) -> str:
        """A text that changes with every field that a body can set. Keyed: a secret cannot be
        guessed from it."""
        content = msgspec.json.encode(self.values(row), enc_hook=str, order="deterministic")
        return salted_hmac("resource", content, algorithm="sha256").hexdigest()[:20]

    def audit(self, action: str, target: str, **detail: Any) -> None:
        record(self.actor, action, target, **detail)

    def _fill(self, row: Any, body: Any) -> dict[str, list[str]]:
        """Set the body's values, and the default of each field that it leaves out. Returns the
        names of related things, which are stored behind the row."""
        for column in self._columns():
            if column.name in body.validated_data:
                setattr(row, column.name, body.validated_data[column.name])
            elif column.name not in self.kept_fields | self.secret_fields:
                setattr(row, column.name, column.get_default())
        return {
            name: sorted(each.name for each in body.validated_data.get(name, ()))
            for name in self._related_names()
        }

    def _names(self) -> set[str]:
        """The fields that a body sets, as the model calls them."""
        serializer: Any = self.serializer_class()
        writable = [field for field in serializer.fields.values() if not field.read_only]
        return {str(field.source) for field in writable}

    def _columns(self) -> list[Field[Any, Any]]:
        names = self._names()
        return [column for column in self.model._meta.concrete_fields if column.name in names]

    def _related_names(self) -> list[str]:
        names = self._names()
        return [each.name for each in self.model._meta.many_to_many if each.name in names]

    def changed(
        self, before: Mapping[str, Any], after: Mapping[str, Any], names: Sequence[str]
    ) -> Changed:
        differences = {
            name: {"stored": before[name], "sent": after[name]}
            for name in names
            if name not in self.secret_fields
        }
        words = "It was changed meanwhile: `differences` has what is stored and what was sent."
        return Changed(words, msgspec.to_builtins(differences, enc_hook=str))

    def _audit_put(
        self,
        row: Any,
        is_new: bool,
        changed_names: Sequence[str],
        before: Mapping[str, Any],
        after: Mapping[str, Any],
    ) -> None:
        """Write the change to the audit log: values before and after, without secrets."""
        names = set(after if is_new else changed_names) - self.secret_fields
        word = self.audit_noun or self.noun.replace(" ", "_")

        def shown(values: Mapping[str, Any]) -> dict[str, Any]:
            return {name: self.audit_value(name, values[name]) for name in sorted(names)}

        if is_new:
            self.audit(f"{word}_created", self.title(row), after=shown(after))
        else:
            both = {"fields": changed_names, "before": shown(before), "after": shown(after)}
            self.audit(f"{word}_changed", self.title(row), **both)
