"""Write the platform file of the stored objects.

Values that are the default are left out, as a PUT leaves them out, unless the default is a setting
of this platform. Secrets are never written: a comment says where one is stored, with a reference
that can take its place.
"""

import hashlib
import re
from collections.abc import Collection, Iterator
from typing import Any

import msgspec
from django.db.models import Model
from rest_framework import serializers

from msgplatform.core.errors import InvalidInput, Undecryptable
from msgplatform.core.json.values import is_same
from msgplatform.core.secrets import encryption
from msgplatform.core.secrets.fields import Unreadable
from msgplatform.models import Biz
from msgplatform.setup.declaration import value_at
from msgplatform.setup.fields import fields_of
from msgplatform.setup.platform_file import kinds, text
from msgplatform.setup.platform_file.kinds import Kind
from msgplatform.setup.platform_file.reading import VERSION, VERSION_KEY

_INDENT = "    "


def check_names(sections: Collection[str], systems: Collection[str]) -> None:
    """Raises InvalidInput for an unknown name: an empty file would take the place of a good one."""
    if unknown := sorted(set(sections) - kinds.sections().keys()):
        names = ", ".join(kinds.sections())
        raise InvalidInput(f"There is no section {', '.join(unknown)}. Use: {names}.", "section")
    stored_names = Biz.objects.filter(name__in=systems).values_list("name", flat=True)
    if unknown := sorted(set(systems).difference(stored_names)):
        raise InvalidInput(f"There is no business system {', '.join(unknown)}.", "system")


def export(
    sections: Collection[str] = (), systems: Collection[str] = (), has_references: bool = False
) -> Iterator[str]:
    """The lines of the file. `sections` and `systems` narrow it (empty: all). With `has_references`
    the references to secrets are no comments: the file can be applied to an empty platform."""
    names, last_section = _VariableNames(), ""
    yield f"{VERSION_KEY}: {VERSION}"
    for kind, row in _objects(sections, systems):
        if (section := kinds.section_of(kind)) != last_section:
            last_section = section
            yield from ("", f"{section}:")
        name = kinds.name_of(kinds.address_of(kind, row))
        name_text = text.write_inline(name)  # over 128 characters: no simple key to `write`
        if fault := _fault(kind, row):
            yield f"  # {name_text} is not here: {fault}."
            continue
        body, secrets = _body(kind, row), dict[str, Any]()
        for field_name, secret in _stored_secrets(kind, row):  # a reference says which one it is
            words = (kind.noun, name, field_name)
            if isinstance(secret, dict):
                secrets[field_name] = {key: names.reference(*words, key) for key in sorted(secret)}
            else:
                secrets[field_name] = names.reference(*words)
        if has_references:
            body, secrets = body | secrets, {}
        yield from (f"  {name_text}:" if body else f"  {name_text}: {{}}", *_lines(body, _INDENT))
        if secrets:
            yield f"{_INDENT}# Secrets that are stored, and stay when they are left out:"
            yield from _lines(secrets, f"{_INDENT}# ")


def content(sections: Collection[str] = (), systems: Collection[str] = ()) -> dict[str, Any]:
    """The file as a value: sections with names and bodies, without secrets."""
    bodies: dict[str, Any] = {VERSION_KEY: VERSION}
    for kind, row in _objects(sections, systems):
        if not _fault(kind, row):
            name = kinds.name_of(kinds.address_of(kind, row))
            bodies.setdefault(kinds.section_of(kind), {})[name] = _body(kind, row)
    return bodies


def _objects(sections: Collection[str], systems: Collection[str]) -> Iterator[tuple[Kind, Model]]:
    """The stored objects with their kinds, in the order of the file."""
    for section, kinds_of_section in kinds.sections().items():
        for kind in kinds_of_section if not sections or section in sections else ():
            if systems and not kind.system_lookup:
                continue
            rows = kind.join_relations(kind.all_rows()).order_by(*kind.address_lookups.values())
            if systems:
                rows = rows.filter(**{f"{kind.system_lookup}__in": systems})
            for row in rows:
                yield kind, row


def _lines(values: dict[str, Any], beginning: str) -> Iterator[str]:
    """Lines end only with LF: U+2028 and blanks at the end belong to a text."""
    for line in text.write(values).removesuffix("\n").split("\n") if values else ():
        yield f"{beginning}{line}" if line else ""


def _fault(kind: Kind, row: Any) -> str:
    """The reason why the row is not in a file; '' if it is. A rule without channels is not."""
    if not kinds.can_name(kind, kinds.address_of(kind, row)):
        return "a file cannot name it"
    for name, field in fields_of(kind.serializer_class).items():
        is_needed = isinstance(field, serializers.ManyRelatedField) and not field.allow_empty
        if is_needed and not getattr(row, str(field.source)).all():
            return f"it has no {name}, and cannot be applied"
    return ""


def _body(kind: Kind, row: Any) -> dict[str, Any]:
    """The fields that are not the default everywhere, without secrets."""
    columns = {column.name: column for column in kind.model._meta.concrete_fields}
    body: dict[str, Any] = {}
    for name, field in fields_of(kind.serializer_class).items():
        source = str(field.source)
        if field.read_only or field.write_only or source in kind.secret_fields:
            continue
        if not kind.is_written(row, name):
            continue
        if isinstance(field, serializers.ManyRelatedField):
            if names := sorted(target.name for target in getattr(row, source).all()):
                body[name] = names
            continue
        column = columns[source]
        is_default = is_same(column.value_from_object(row), column.get_default())
        if is_default and source not in kind.always_written:
            continue
        value = value_at(row, source)
        if value is not None:
            value = field.to_representation(value)
            body[name] = msgspec.to_builtins(value, enc_hook=str, str_keys=True)  # JSON's types
    return {name: value for name, value in body.items() if value is not None}


def sealed_body(kind: Kind, row: Any) -> dict[str, Any]:
    """The body with its secrets encrypted by the first key of ENCRYPTION_KEY. Raises
    Undecryptable."""
    body = _body(kind, row)
    for name, value in _stored_secrets(kind, row):
        if isinstance(value, Unreadable):
            raise Undecryptable(
                f"the {name} of {kind.noun} {row} cannot be decrypted: add its key to "
                "ENCRYPTION_KEY, or set it again"
            )
        if isinstance(value, dict):
            body[name] = {key: encryption.encrypt(text) for key, text in value.items()}
        else:
            body[name] = encryption.encrypt(value)
    return body


def _stored_secrets(kind: Kind, row: Any) -> Iterator[tuple[str, Any]]:
    """The secret fields that have a value, with their values."""
    for name, field in fields_of(kind.serializer_class).items():
        if field.source in kind.secret_fields:
            column: Any = kind.model._meta.get_field(str(field.source))
            value = column.value_from_object(row)
            if isinstance(value, Unreadable) or value:
                yield name, value


class _VariableNames:
    """The variables that a file's references name: each secret has its own."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def reference(self, *words: str) -> str:
        """A reference to the secret that these words name."""
        name = re.sub(r"\W+", "_", "_".join(words), flags=re.ASCII).upper()
        if name in self._names:  # such as for the headers X-Key and X_Key
            name += f"_{hashlib.sha256('/'.join(words).encode()).hexdigest()[:8].upper()}"
        self._names.add(name)
        return f"${{{name}}}"
