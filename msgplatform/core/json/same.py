"""Whether two values are the same JSON."""

from __future__ import annotations

from typing import Any

import msgspec


def same(one: Any, other: Any) -> bool:
    """In JSON 1 and true differ; Python compares them as equal. The order of members is ignored."""
    if one != other or not isinstance(one, bool | int | dict | list):
        return bool(one == other)
    encoded = [msgspec.json.encode(each, order="deterministic") for each in (one, other)]
    return encoded[0] == encoded[1]
