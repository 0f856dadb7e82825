"""Two people change the same row at once: the second is told, before anything is saved.

A form carries a digest of each of its fields as they were stored when the page was made. When one
of them is another at save, the form stays as it was filled in and says what differs, and the audit
log who did it. The next save of that page then counts. A POST without digests, as of a script, is
not compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from django import forms
from django.db.models import Model
from django.http import HttpRequest
from django.utils.crypto import salted_hmac
from django.utils.translation import gettext as _

from msgplatform.admin import auditing
from msgplatform.models import AuditLog

SEEN = "_seen"  # the hidden field
_DIGITS = 12
_MAX_ENTRIES = 20  # entries of the audit log that are looked at, the latest


@dataclass(frozen=True)
class Difference:
    """A field that somebody else has changed. `before` and `after` are None for a secret; without
    an entry in the audit log `actor` is '' and `before` is None."""

    label: str
    before: str | None
    after: str | None
    actor: str = ""
    at: datetime | None = None


@dataclass(frozen=True)
class Seen:
    """What a page was made of: the last entry of the audit log about its row, and a digest of each
    field."""

    entry: int
    digests: Mapping[str, str]

    @classmethod
    def read(cls, text: str) -> Seen | None:
        """None for a text that no page of ours has sent."""
        try:
            return msgspec.json.decode(text, type=cls)
        except (msgspec.DecodeError, UnicodeError):
            return None

    def text(self) -> str:
        return msgspec.json.encode(self).decode()

    def changed_names(self, now: Seen) -> list[str]:
        """The fields that are others now."""
        return [name for name, digest in now.digests.items() if self.digests.get(name) != digest]


def seen_now(row: Model, form_class: type[forms.ModelForm[Any]], audit_target: str) -> Seen:
    """The row as it is stored, as far as the form can change it."""
    editable = {name for name, field in form_class.base_fields.items() if not field.disabled}
    columns = [field for field in row._meta.concrete_fields if field.name in editable]
    relations = [field for field in row._meta.many_to_many if field.name in editable]
    values = {column.name: column.value_from_object(row) for column in columns}
    for relation in relations:
        values[relation.name] = sorted(each.pk for each in relation.value_from_object(row))
    digests = {name: _digest(row, name, value) for name, value in values.items()}
    entries = AuditLog.objects.filter(target=audit_target[:200]).order_by("-id")
    return Seen(entries.values_list("id", flat=True).first() or 0, digests)


def _digest(row: Model, name: str, value: Any) -> str:
    """Differs for each value; keyed, so that nobody can guess a secret by it."""
    content = msgspec.json.encode(
        [row._meta.label, row.pk, name, value], enc_hook=str, order="deterministic"
    )
    return salted_hmac("admin form", content, algorithm="sha256").hexdigest()[:_DIGITS]


def compared(
    form_class: type[forms.ModelForm[Any]],
    request: HttpRequest,
    row: Model,
    audit_target: str,
    audit_prefix: str,
) -> type[forms.ModelForm[Any]]:
    """The form that refuses to be saved over changes that its page did not show.

    `row` is as it is stored, and locked when the request is a POST.
    """
    now = seen_now(row, form_class, audit_target)
    before = Seen.read(request.POST.get(SEEN, ""))

    class ComparedForm(form_class):  # type: ignore[misc,valid-type]
        seen = now.text()
        differences: Sequence[Difference] = ()

        def clean(self) -> Any:
            values = super().clean()
            changed_names = before.changed_names(now) if before else []
            if not changed_names or not self.has_changed():
                return values  # a form that was sent twice changes nothing the second time
            entries = _entries(audit_target, audit_prefix, before.entry if before else 0)
            self.differences = list(_differences(self, changed_names, entries))
            self.add_error(None, self.sentence())
            return values

        def sentence(self) -> str:
            text = _(
                "Somebody else changed this while you had it open, and nothing was saved. What you "
                "typed is still in the form; saving it now replaces what they have changed."
            )
            names = [name for name in self.changed_data if auditing.is_secret(name, self)]
            return f"{text} {_('Enter secrets once more.')}" if names else text

    ComparedForm.__name__ = form_class.__name__
    return ComparedForm


def _entries(target: str, prefix: str, after: int) -> list[AuditLog]:
    rows = AuditLog.objects.filter(target=target[:200], id__gt=after)
    return list(rows.filter(action__startswith=prefix).order_by("-id")[:_MAX_ENTRIES])[::-1]


def _differences(
    form: Any, changed_names: Sequence[str], entries: Sequence[AuditLog]
) -> Iterator[Difference]:
    """One for each change of these fields that the audit log has; of a field of which it has none,
    the value that is stored now."""
    for name in changed_names:
        label = str(form.fields[name].label or name)
        logged = [(entry, _values(entry, name)) for entry in entries]
        changes = [(entry, values) for entry, values in logged if values is not None]
        for entry, values in changes:
            if auditing.is_secret(name, form) or auditing.SECRET in values:
                yield Difference(label, None, None, entry.actor, entry.at)
            else:
                before, after = map(_text, values)
                yield Difference(label, before, after, entry.actor, entry.at)
        if not changes:
            is_secret = auditing.is_secret(name, form)
            value = None if is_secret else _text(auditing.initial_value(form, name))
            yield Difference(label, None, value)


def _values(entry: AuditLog, name: str) -> Sequence[Any] | None:
    """The field's value before and after, as the console or the API has written it."""
    detail = entry.detail
    if name in (changes := detail.get("changes") or {}):
        values = changes[name]
        return values if isinstance(values, list) and len(values) == 2 else None
    if name in detail.get("fields", ()):
        nothing = auditing.SECRET  # the API logs no secrets
        return [detail.get(part, {}).get(name, nothing) for part in ("before", "after")]
    return None


def _text(value: Any) -> str:
    if value in (None, "", [], {}):
        return "–"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
