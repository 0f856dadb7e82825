"""The objects that people set up, such as a consumer: declared once, and read, created or replaced,
deleted by name.

A `put` describes the whole object: a field that is left out or null gets its default, and the same
`put` twice changes nothing. The model (`full_clean`) says which values a column may have, and
`Resource.faults` which changes are allowed: the console's form, the API and the platform file ask
both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from datetime import UTC, datetime
from typing import Any

import msgspec
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Field
from django.http import Http404
from django.utils.crypto import salted_hmac

from msgplatform.core.errors import Changed, NotNow
from msgplatform.core.flows.text import Text
from msgplatform.core.json.values import is_same
from msgplatform.models import AuditLog, Biz
from msgplatform.setup.declaration import Before, Declaration, value_at
from msgplatform.setup.fields import fields_of
from msgplatform.setup.refusals import LimitedKey


class Stored(msgspec.Struct, frozen=True):
    """The row after a `put`, and fields that only this answer shows, such as a secret.

    `differences` has what the `put` has changed: field → {"stored": value before, "sent": after}.
    It has no secret; `changed_secrets` names the secret fields that changed.
    """

    row: Any
    is_new: bool = False
    shown_once: Mapping[str, Any] = msgspec.field(default_factory=dict)
    differences: Mapping[str, Mapping[str, Any]] = msgspec.field(default_factory=dict)
    changed_secrets: Sequence[str] = ()


def system_of(name: str) -> Biz:
    """The business system with this name. Raises Http404."""
    row = Biz.objects.filter(name=name).first()
    if row is None:
        raise Http404("There is no such business system; create it first.")
    return row


def changed_error(differences: Mapping[str, Mapping[str, Any]]) -> Changed:
    words = "It was changed meanwhile: `differences` has what is stored and what was sent."
    return Changed(words, differences)


class Resource(Declaration):
    """The operations on an object. See `Declaration`."""

    # Where entries of the audit log are collected; None: each is stored at once.
    audit_entries: list[AuditLog] | None = None

    def get(self, for_change: bool = False) -> Any:
        """The row, locked with `for_change`. Raises Http404, and with `for_change` LimitedKey."""
        self.check_address()
        rows = self.visible_rows(self.rows(), self.systems)
        row = (rows.select_for_update() if for_change else rows).first()
        if row is None:
            raise self.missing()
        if for_change:
            self.check_system(row)
        return row

    def missing(self) -> Http404:
        """The error for a missing object, and for an object of a business system that is not the
        caller's, so that nobody learns whether it exists."""
        scope_text = f" in the business systems {', '.join(sorted(self.systems))}"
        return Http404(f"There is nothing of this name{scope_text if self.systems else ''}.")

    def check_address(self) -> None:
        """Raise Http404 when the address names a business system that is not the caller's, or has a
        name with blanks around it: MariaDB ignores those at its end, and would read another one."""
        if any(part != part.strip() for part in self.address.values()):
            raise Http404("There is nothing of this name: leave out the blanks around it.")
        for part, lookup in self.address_lookups.items():
            if lookup == self.system_lookup:
                self.check_owner(self.address[part])

    def check_system(self, row: Any) -> None:
        """Raise an error unless the caller may change this row: see `check_owner`."""
        self.check_owner(value_at(row, self.system_lookup) if self.system_lookup else None)

    def check_owner(self, system: str | None) -> None:
        """Raise Http404 for a business system that is not the caller's, and LimitedKey for None,
        the platform, when the caller is limited."""
        if not self.systems or system in self.systems:
            return
        raise LimitedKey(self.systems) if system is None else self.missing()

    def put(self, data: Any, version: str = "", should_be_new: bool = False) -> Stored:
        """Create the object, or replace its values by `data`.

        Raises Changed when the stored object does not have this `version` ("*": any version of an
        object that exists), or exists with `should_be_new`; ValidationErrors for wrong values.
        """
        try:
            return self._put(data, version, should_be_new)
        except IntegrityError:
            # Another request has created this object meanwhile, or deleted an object that it needs.
            return self._put(data, version, should_be_new)

    @transaction.atomic
    def _put(self, data: Any, version: str, should_be_new: bool) -> Stored:
        self.check_address()
        stored_row = self.rows().select_for_update().first()
        is_new = stored_row is None
        if not is_new or not self.system_lookup:
            self.check_system(stored_row)
        if should_be_new and not is_new:
            raise Changed("There is something of this name already.")
        if version and is_new:
            raise Changed("There is nothing of this name any more.")
        row: Any = self.new() if is_new else copy(stored_row)
        body: Any = self.serializer_class(row, data=data, context={"systems": self.systems})
        body.is_valid(raise_exception=True)
        before = self.values(row)
        related_names = self._fill(row, body)
        self.related = {name: body.validated_data.get(name, ()) for name in related_names}
        self.check_system(row)
        row.full_clean(validate_unique=False, validate_constraints=False)
        after = self.values(row) | related_names
        changed_names = sorted(name for name in after if not is_same(before[name], after[name]))
        if version not in ("", "*") and version != self.version(stored_row):
            raise changed_error(self.differences(stored_row, row, before, related_names))
        if not is_new and not changed_names:
            return Stored(row)
        kept_secrets = self.secret_fields - body.validated_data.keys()
        self._check_change(row, None if is_new else Before(stored_row, kept_secrets), changed_names)
        differences = {} if is_new else self.differences(stored_row, row, before, related_names)
        dependent_names = self.set_dependent_fields(row, changed_names)
        columns = [name for name in changed_names if name not in related_names]
        row.save(update_fields=None if is_new else [*columns, *dependent_names])
        for name in related_names:
            getattr(row, name).set(self.related[name])
        shown_once = self.after_save(row, is_new)
        transaction.on_commit(self.forget_cached)
        logged_names = sorted(set(after if is_new else changed_names) - self.secret_fields)
        log_before, log_after = (
            {name: self.audit_value(name, values[name]) for name in logged_names}
            for values in (before, after)
        )
        change = {} if is_new else {"fields": changed_names, "before": log_before}
        action = f"{self.audit_word()}_{'created' if is_new else 'changed'}"
        self.audit(action, self.title(row), **change, after=log_after)
        changed_secrets = sorted(self.secret_fields.intersection(changed_names))
        return Stored(row, is_new, shown_once, differences, changed_secrets)

    def _check_change(self, row: Any, before: Before | None, changed_names: Sequence[str]) -> None:
        """Raises NotNow, and ValidationError with all faults by the body's fields."""
        faults: list[tuple[str, Text]] = []
        if before is not None:
            if reason := self.lock_reason(before.row):
                raise NotNow(str(reason))
            fixed_fields = self.fixed_fields(before.row).items()
            faults = [(name, why) for name, why in fixed_fields if name in changed_names]
        body_names = {
            str(field.source): name for name, field in fields_of(self.serializer_class).items()
        }
        sentences: dict[str, list[str]] = {}
        # A stored row needs no correction to be switched off.
        if before is None or changed_names != ["enabled"] or row.enabled:
            faults += self.faults(row, before)
        for name, sentence in faults:
            sentences.setdefault(body_names.get(name, name), []).append(str(sentence))
        if sentences:
            raise ValidationError(sentences)

    def delete(self, version: str = "") -> None:
        """Delete the object, or switch it off. Raises Http404, Changed when the object does not
        have this version, NotNow while others refer to it."""
        try:
            with transaction.atomic():
                row = self.get(for_change=True)
                self.check_version(row, version)
                self.remove(row)
        except IntegrityError:  # a reference that `remove` has not looked for
            raise NotNow(f"Something refers to this {self.noun}.") from None

    def remove(self, row: Any) -> None:
        """Delete the locked row or switch it off, and write the audit log. Raises NotNow."""
        if not self.is_deleted:
            if row.enabled:
                row.enabled = False
                row.save(update_fields=["enabled"])
                self.audit(f"{self.audit_word()}_disabled", self.title(row))
                transaction.on_commit(self.forget_cached)
            return
        if fault := self.removal_fault(row):
            raise NotNow(str(fault))
        self.audit(f"{self.audit_word()}_deleted", self.title(row), **self.deleted_detail(row))
        row.delete()
        transaction.on_commit(self.forget_cached)

    def check_version(self, row: Any, version: str) -> None:
        """Raise Changed when the row does not have this version ('' and "*": any)."""
        if version not in ("", "*", self.version(row)):
            raise Changed("It was changed meanwhile: read it again.")

    def values(self, row: Any) -> dict[str, Any]:
        """Values of the fields that a body sets; related objects as sorted names."""
        values = {column.name: column.value_from_object(row) for column in self._columns()}
        for name in self._related_names():
            names = getattr(row, name).values_list("name", flat=True) if row.pk else ()
            values[name] = sorted(names)
        return values

    def version(self, row: Any) -> str:
        """A text that differs if any field that a body sets differs. It is keyed, so that nobody
        can find a secret by guessing."""
        values = {  # use one zone: a row has that of its PUT, or UTC
            name: value.astimezone(UTC) if isinstance(value, datetime) else value
            for name, value in self.values(row).items()
        }
        content = msgspec.json.encode(values, enc_hook=str, order="deterministic")
        return salted_hmac("resource", content, algorithm="sha256").hexdigest()[:20]

    def audit(self, action: str, target: str, **detail: Any) -> None:
        entry = AuditLog.entry(self.actor, action, target, **detail)
        if self.audit_entries is None:
            entry.save(force_insert=True)
        else:
            self.audit_entries.append(entry)

    def _fill(self, row: Any, body: Any) -> dict[str, list[str]]:
        """Set the row's columns from the body, or to their defaults. Returns the names of related
        objects by field, which can be stored only after the row."""
        for column in self._columns():
            if column.name in body.validated_data:
                setattr(row, column.name, body.validated_data[column.name])
            elif column.name not in self.kept_fields | self.secret_fields:
                setattr(row, column.name, column.get_default())
        return {
            name: sorted({related_row.name for related_row in body.validated_data.get(name, ())})
            for name in self._related_names()
        }

    def _names(self) -> set[str]:
        """The model's names of the fields that a body sets."""
        fields_by_name = fields_of(self.serializer_class)
        return {str(field.source) for field in fields_by_name.values() if not field.read_only}

    def _columns(self) -> list[Field[Any, Any]]:
        names = self._names()
        return [column for column in self.model._meta.concrete_fields if column.name in names]

    def _related_names(self) -> list[str]:
        names = self._names()
        return [field.name for field in self.model._meta.many_to_many if field.name in names]

    def differences(
        self,
        stored_row: Any,
        sent_row: Any,
        before: Mapping[str, Any],
        related: Mapping[str, Sequence[str]],
    ) -> dict[str, dict[str, Any]]:
        """All differences, as the API shows them. `related` has the sent names of related objects,
        `before` the stored ones."""
        stored_values = {
            **self.serializer_class(stored_row).data,
            **{name: before[name] for name in related},
        }
        sent_values = {**self.serializer_class(sent_row).data, **related}
        return {
            name: {"stored": stored_values[name], "sent": sent_values[name]}
            for name in stored_values
            if not is_same(stored_values[name], sent_values[name])
        }
