"""Templates of an HTTP interface: a URL, headers or a JSON body with places for a record's values.

    {key} {version} {deleted} {remote_id}    of the record
    {field.phone}                            one of its fields
    {fields}                                 all of them, as an object
    {record} {records}                       what the template `record` makes of one, of all
    {secret.token}                           one of the credentials

A text that is one place gets the value with its type; a property whose field is not sent is left
out.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec
from django.utils.translation import gettext as _

from crmsync.adapters.base import Record
from msgplatform.core.errors import InvalidInput

_PLACE = re.compile(r"\{(\w+(?:\.[^{}]+)?)\}")
_OF_RECORD = ("key", "version", "deleted", "remote_id", "fields")
_SLASHES = re.compile(r"[/\\]")
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# None is a value: it clears a field.
_MISSING = object()


def places(template: Any) -> Iterator[str]:
    if isinstance(template, str):
        yield from _PLACE.findall(template)
    elif isinstance(template, Mapping):
        for name, value in template.items():
            yield from places(name)
            yield from places(value)
    elif isinstance(template, Sequence):
        for value in template:
            yield from places(value)


def check(template: Any, setting: str, secrets: Mapping[str, str], *more: str) -> None:
    """Raises InvalidInput for a place that nothing can fill; `more` are allowed besides."""
    for place in places(template):
        kind, name = place.partition(".")[::2]
        # A missing secret is found when the settings are saved, not at the first call.
        if kind == "secret" and name and name not in secrets:
            words = _("%(setting)s names {%(place)s}, and no such secret is set.")
            raise InvalidInput(words % {"setting": setting, "place": place}, setting)
        if place in _OF_RECORD or place in more or (kind in ("field", "secret") and name):
            continue
        words = _("%(setting)s names {%(place)s}, which does not exist.")
        raise InvalidInput(words % {"setting": setting, "place": place}, setting)


def find_unsafe_place(url_template: str, values: Mapping[str, Any]) -> str:
    """The place of a key or a field that cannot be a part of the path, '' if all can: servers drop
    a part that is empty, and resolve `.` and `..`, also behind a slash that they have decoded. The
    URL would name another resource of the CRM."""

    def as_text(match: re.Match[str]) -> str:
        value = values.get(match[1])
        return "" if value is None else str(value)

    for part in url_template.partition("?")[0].split("/"):
        part_text = _PLACE.sub(as_text, part)
        if not part_text or {".", ".."}.intersection(_SLASHES.split(part_text)):
            for place in _PLACE.findall(part):
                if place == "key" or place.startswith("field."):
                    return str(place)
    return ""


def values_of(record: Record) -> dict[str, Any]:
    return {
        "key": record.key,
        "version": record.version,
        "deleted": record.deleted,
        "remote_id": record.remote_id,
        "fields": dict(record.fields),
        **{f"field.{name}": value for name, value in record.fields.items()},
    }


def fill(template: Any, values: Mapping[str, Any]) -> Any:
    """A JSON template with its places filled."""
    value = _fill(template, values)
    return None if value is _MISSING else value


def text(template: str, values: Mapping[str, Any]) -> str:
    """A text with its places filled; what is missing is empty."""
    return _PLACE.sub(lambda place: as_text(values.get(place[1])), template)


def header(template: str, values: Mapping[str, Any]) -> str:
    """A header's value with its places filled. A control character of a record is percent-encoded:
    a header cannot hold a line break. A secret with one stays as it is, and the call is refused."""

    def fill_place(place: re.Match[str]) -> str:
        value = as_text(values.get(place[1]))
        if place[1].startswith("secret."):
            return value
        return _CONTROLS.sub(lambda control: quote(control[0]), value)

    return _PLACE.sub(fill_place, template)


def url(template: str, values: Mapping[str, Any]) -> str:
    """A URL with its places filled, each as one part of it."""
    return _PLACE.sub(lambda place: quote(as_text(values.get(place[1])), safe=""), template)


def _fill(template: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(template, str):
        # A text that is one place: the value keeps its type, so that numbers stay numbers.
        if whole := _PLACE.fullmatch(template):
            return values.get(whole[1], _MISSING)
        return text(template, values)
    if isinstance(template, Mapping):
        pairs = ((text(name, values), _fill(value, values)) for name, value in template.items())
        # Leave out a field that is not sent: null would clear it in the CRM.
        return {name: value for name, value in pairs if value is not _MISSING}
    if isinstance(template, Sequence):
        items = (_fill(value, values) for value in template)
        return [value for value in items if value is not _MISSING]
    return template


def as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping | list | tuple):
        return msgspec.json.encode(value).decode()
    return str(value).lower() if isinstance(value, bool) else str(value)
