"""What a person may narrow a bulk action of Feed by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from msgplatform.api import filters
from notify.feed.search.filters import topic


@dataclass(frozen=True, slots=True)
class Filter:
    """Values, None where nothing was asked. Times are ids: since <= id < until."""

    topic: str | None = None
    biz: int | None = None
    user: str | None = None
    since: int | None = None
    until: int | None = None
    ids: tuple[int, ...] | None = None


def parse(given: Mapping[str, Any], allowed: Iterable[str]) -> Filter:
    """Raises InvalidInput naming the field. Empty texts count as not given."""
    return Filter(**filters.values(given, {**filters.READERS, "topic": topic}, allowed))
