"""Compare JSON values, change their leaves, and measure how deeply they are nested."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def is_same(value: Any, other: Any) -> bool:
    """True if both values are the same JSON, in any order of members. 1 and true differ in JSON;
    Python compares them as equal."""
    if value != other or not isinstance(value, bool | int | dict | list):
        return bool(value == other)
    texts = [msgspec.json.encode(part, order="deterministic") for part in (value, other)]
    return texts[0] == texts[1]


def map_leaves(value: Any, kind: type[T], change: Callable[[T], Any]) -> Any:
    """The value with `change` of each leaf of this type. The caller bounds the depth."""
    if isinstance(value, Mapping):
        return {name: map_leaves(part, kind, change) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [map_leaves(part, kind, change) for part in value]
    return change(value) if isinstance(value, kind) else value


# Levels of a value that is stored: MariaDB stores less than 32 (JSON_DEPTH_LIMIT), and the audit
# log has such a value two levels down.
MAX_STORED_DEPTH = 29
# Levels of any value, because functions that show or check a value recurse for each level.
MAX_DEPTH = 100


class RepeatedName(ValueError):
    """An object has a name twice. Readers take one of its values, and not the same one."""


def object_of(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An `object_pairs_hook` that raises RepeatedName."""
    value = dict(pairs)
    if len(value) < len(pairs):
        counts = Counter(name for name, _value in pairs)
        raise RepeatedName(next(name for name, count in counts.items() if count > 1))
    return value


def depth(value: Any) -> int:
    """The depth of nested arrays and objects; 0 for a text or a number."""
    return sum(1 for _level in levels(value)) - 1


def levels(value: Any) -> Iterator[Sequence[Any]]:
    """The value, then the values in it, and so on. A recursive function could not walk a value that
    is nested too deeply."""
    level = [value]
    while True:
        yield level
        parts = [part for part in level if isinstance(part, dict | list)]
        if not parts:
            return
        level = [
            below for part in parts for below in (part.values() if isinstance(part, dict) else part)
        ]
