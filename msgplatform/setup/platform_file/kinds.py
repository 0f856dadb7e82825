"""The kinds of objects in a platform file. They are those of the management API: no kind is
registered here."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from typing import Any
from urllib.parse import unquote

from django.db.models import Model
from django.urls.converters import get_converters
from rest_framework import serializers

from msgplatform.core import flows
from msgplatform.models import KeptObject
from msgplatform.setup.declaration import value_at
from msgplatform.setup.resource import Resource

Kind = type[Resource]
_PART = re.compile(r"<(\w+):(\w+)>")
_MAX_KEPT_NAME: int = KeptObject._meta.get_field("name").max_length  # type: ignore[assignment]
_PLATFORM_URLS = "msgplatform.doors.api.management.urls"


@cache
def kinds() -> Sequence[Kind]:
    """Every kind, each after the kinds that it refers to."""
    all_kinds: list[Kind] = []
    for urls in [_PLATFORM_URLS, *(flow.urls for flow in flows.all() if flow.urls)]:
        for pattern in import_module(urls).urlpatterns:
            view = getattr(getattr(pattern, "callback", None), "cls", None)
            kind = getattr(view, "resource_class", None)
            if kind is not None and kind.is_in_files and str(pattern.pattern) == kind.path:
                all_kinds.append(kind)
    by_model: dict[type[Model], list[Kind]] = {}
    for kind in all_kinds:
        by_model.setdefault(kind.model, []).append(kind)
    needed_kinds = {
        kind: [other for model in _named_models(kind) for other in by_model.get(model, ())]
        for kind in all_kinds
    }
    return tuple(TopologicalSorter(needed_kinds).static_order())


@cache
def sections() -> dict[str, Sequence[Kind]]:
    """The sections of a file with their kinds, in the order of `kinds`."""
    by_name: dict[str, list[Kind]] = {}
    for kind in kinds():
        by_name.setdefault(section_of(kind), []).append(kind)
    return dict(by_name)


def section_of(kind: Kind) -> str:
    """The name of the section that has the objects of this kind."""
    return kind.section or kind.list_path


def address_of(kind: Kind, row: Any) -> dict[str, str]:
    """The address of a stored row, by part."""
    return {part: str(value_at(row, lookup)) for part, lookup in kind.address_lookups.items()}


def name_of(address: dict[str, str]) -> str:
    """An address in a file's form: orders/warehouse. A slash inside of a part is `%2F`."""
    return "/".join(value.replace("%", "%25").replace("/", "%2F") for value in address.values())


def parse_name(section: str, name: str) -> tuple[Kind, dict[str, str]]:
    """The kind and the address of a name in a section. Raises ValueError that says how to write
    it."""
    parts = [unquote(part) for part in name.split("/")]
    for kind in sections()[section]:
        converters = {part: converter for converter, part in _PART.findall(kind.path)}
        if len(parts) != len(kind.address_lookups):
            continue
        for part, value in zip(kind.address_lookups, parts, strict=True):
            if value != value.strip():
                raise ValueError(f"Leave out the blanks around the {part}.")
            converter = get_converters()[converters[part]]
            if not re.fullmatch(converter.regex, value):
                allowed_text = "letters, digits, hyphens and underscores"
                raise ValueError(f"Write the {part} of a {kind.noun} with {allowed_text}.")
        return kind, dict(zip(kind.address_lookups, parts, strict=True))
    forms = " or ".join("/".join(kind.address_lookups) for kind in sections()[section])
    raise ValueError(f"The name of an entry is {forms}.")


def can_name(kind: Kind, address: dict[str, str]) -> bool:
    """True if a file can name the object; a name of an earlier release may have a slash."""
    try:
        return parse_name(section_of(kind), name_of(address)) == (kind, address)
    except ValueError:
        return False


def kept_name(name: str) -> str:
    """The name of an entry as `KeptObject` has it: one that is longer than the column ends with its
    digest."""
    if len(name) <= _MAX_KEPT_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()
    return f"{name[: _MAX_KEPT_NAME - len(digest)]}{digest}"


def kept_object(row: Any) -> KeptObject | None:
    """The entry of a stored row that a platform file keeps; None if none keeps it."""
    for kind in kinds():
        if kind.model is type(row) and kind.all_rows().filter(pk=row.pk).exists():
            name = kept_name(name_of(address_of(kind, row)))
            return KeptObject.objects.filter(section=section_of(kind), name=name).first()
    return None


def _named_models(kind: Kind) -> Iterator[type[Model]]:
    """Models of the objects that objects of this kind refer to."""
    yield from kind.named_models
    for lookup in kind.address_lookups.values():
        relation, separator, _name = lookup.partition("__")
        if separator:
            yield kind.model._meta.get_field(relation).related_model  # type: ignore[misc]
    serializer: Any = kind.serializer_class()
    for field in serializer.fields.values():
        related: Any = getattr(field, "child_relation", field)
        is_relation = isinstance(related, serializers.RelatedField)
        queryset: Any = getattr(related, "queryset", None) if is_relation else None
        if queryset is not None:
            yield queryset.model
