"""Erase the data of one person in payloads, and make the person's export of payloads.

Pointers name the fields with personal data (`personal_fields.py`). Fields of one entry of a list
belong together, so that one of ten passengers is erased. In other fields only a phone number or an
e-mail address of the person is erased.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from msgplatform.core.person.identity import Person, text_of
from msgplatform.core.personal import MARK
from notify import personal_fields

_ANY_ENTRY = "*"
Path = tuple[str | int, ...]
# Numbers keep their spelling: 99.10 stays 99.10.
_decode = msgspec.json.Decoder(float_hook=Decimal).decode
_encode = msgspec.json.Encoder(decimal_format="number").encode


def types_of_several() -> set[str]:
    """The platform's own event types whose payloads have data of several people."""
    return {
        name
        for name, pointers in personal_fields.own.items()
        if any(f"/{_ANY_ENTRY}/" in p for p in pointers)
    }


def pointers_of(
    pointers: Mapping[str, Mapping[int, Sequence[str]]], event_type: str, biz_id: int
) -> list[str]:
    """The pointers for a message, from the shared entry and from its system's own entry."""
    of_type = pointers.get(event_type, {})
    return [*of_type.get(0, ()), *(of_type.get(biz_id, ()) if biz_id else ())]


def erase_person(
    payload: bytes, pointers: Collection[str], person: Person, biz_id: int
) -> bytes | None:
    """The payload without the person's data; None if it has no such data."""
    try:
        content = _decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        text = payload.decode(errors="surrogateescape")
        new_text = person.erased(text)
        return None if new_text == text else new_text.encode(errors="surrogateescape")
    places = _places(content, pointers)
    # A number in a field without a pointer does not make the named fields beside it the person's.
    # Nor does a number inside the text of a named field: only the mention is erased.
    owners = _owners(content, places, person, biz_id)
    if not owners and not any(person.is_in(text_of(value)) for _path, value in _leaves(content)):
        if not person.is_in_bytes(payload):
            return None
        # Of fields with one name only the last is in `content`.
        new_payload = _encode(content)
        return None if person.is_in_bytes(new_payload) else new_payload
    person_paths = [path for path, prefix in places.items() if prefix in owners]
    for path in [path for path in person_paths if _at(content, path) not in (None, "", [], {})]:
        _set(content, path, MARK)
    new_payload = _encode(_erase_leaves(content, person))
    return None if _decode(new_payload) == _decode(payload) else new_payload


def mask_others(
    payload: bytes,
    pointers: Collection[str],
    person: Person,
    biz_id: int,
    has_several: bool = False,
) -> bytes:
    """The payload for the person's export: MARK replaces named fields that are not the person's,
    in entries of lists and outside. With `has_several` MARK replaces such an entry as a whole. A
    payload that only mentions the person is exported as the mentions alone."""
    try:
        content = _decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return person.mention(payload.decode(errors="replace")).encode()
    places = _places(content, pointers)
    owners = _owners(content, places, person, biz_id)
    if not owners:
        mentions = {
            "/" + "/".join(map(str, path)): person.mention(text_of(value))
            for path, value in _leaves(content)
            if person.is_in(text_of(value))
        }
        return _encode(mentions)
    for path, prefix in places.items():
        if prefix not in owners:
            place = prefix if has_several and prefix else path
            texts = [person.mention(text_of(v)) for _, v in _leaves(_at(content, path))]
            _set(content, place, " ".join(filter(None, texts)) or MARK)
    return _encode(content)


def _places(content: Any, pointers: Collection[str]) -> dict[Path, Path]:
    """The path of each field that the pointers name → path of its list entry, () outside of
    lists."""
    places: dict[Path, Path] = {}
    for pointer in pointers:
        parts = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
        places.update(_paths(content, parts))
    return places


def _owners(content: Any, places: Mapping[Path, Path], person: Person, biz_id: int) -> set[Path]:
    """The list entries that are the person's, () outside of lists."""
    return {
        prefix
        for path, prefix in places.items()
        if any(person.is_owner(value, biz_id) for _, value in _leaves(_at(content, path)))
    }


def _paths(
    content: Any, parts: Sequence[str], path: Path = (), prefix: Path = ()
) -> Iterator[tuple[Path, Path]]:
    """Yield the path of each field that a pointer names, and the path of its list entry."""
    if not parts:
        if path:
            yield path, prefix
        return
    part, later_parts = parts[0], parts[1:]
    if isinstance(content, list):
        if part == _ANY_ENTRY:
            for index, entry in enumerate(content):
                yield from _paths(entry, later_parts, (*path, index), (*path, index))
        elif part.isascii() and part.isdigit() and int(part) < len(content):
            yield from _paths(content[int(part)], later_parts, (*path, int(part)), prefix)
    elif isinstance(content, dict) and part in content:
        yield from _paths(content[part], later_parts, (*path, part), prefix)


def _leaves(content: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if isinstance(content, dict):
        for name, part in content.items():
            yield (*path, name), name
            yield from _leaves(part, (*path, name))
    elif isinstance(content, list):
        for index, part in enumerate(content):
            yield from _leaves(part, (*path, index))
    else:
        yield path, content


def _at(content: Any, path: Path) -> Any:
    for part in path:
        content = content[part]
    return content


def _set(content: Any, path: Path, value: Any) -> None:
    """Set the value at a path; do nothing if an object on the path was erased as a whole."""
    for part in path[:-1]:
        content = content[part] if _is_container(content) else None
    if _is_container(content):
        content[path[-1]] = value


def _is_container(content: Any) -> bool:
    return isinstance(content, dict | list)


def _erase_leaves(content: Any, person: Person) -> Any:
    if isinstance(content, dict):
        return {person.erased(name): _erase_leaves(part, person) for name, part in content.items()}
    if isinstance(content, list):
        return [_erase_leaves(part, person) for part in content]
    if isinstance(content, str):
        return person.erased(content)
    return MARK if person.is_in(text_of(content)) else content
