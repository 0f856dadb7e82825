"""What a person may narrow a search of Feed by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from django.utils.translation import gettext as _

from msgplatform.api import filters
from msgplatform.core.errors import InvalidInput
from notify.feed.models import EventQueue

DELETED, HANDLED = "deleted", "handled"
_STATUS = EventQueue.Status
# States of events that are not handled: such events are few, and in an index.
OPEN = {
    "waiting": _STATUS.WAITING, "in_slices": _STATUS.IN_SLICES, "set_aside": _STATUS.SET_ASIDE,
}  # fmt: skip
STATES = (*OPEN, HANDLED, DELETED)


@dataclass(frozen=True, slots=True)
class Filter:
    """Values, None for what was not given. Times are ids: since <= id < until."""

    id: int | None = None
    biz: int | None = None
    user: str | None = None
    topic: str | None = None
    kind: str | None = None
    state: str | None = None
    since: int | None = None
    until: int | None = None

    @property
    def lists_events(self) -> bool:
        """Whether the search goes over events instead of posts; upkeep has only events."""
        return self.state in OPEN or self.topic == EventQueue.Topic.UPKEEP


def parse(given: Mapping[str, Any], allowed: Iterable[str]) -> Filter:
    """Raises InvalidInput naming the field. Empty texts count as not given."""
    filter = Filter(**filters.values(given, _READERS, allowed))
    if filter.topic == EventQueue.Topic.UPKEEP and filter.state == DELETED:
        raise InvalidInput(_("only posts are deleted"), "state")
    return filter


def topic(text: str, field: str) -> str:
    """Raises InvalidInput, as every reader of a filter."""
    if text not in EventQueue.Topic.values:
        raise InvalidInput(_("use one of %s") % ", ".join(EventQueue.Topic.values), field)
    return text


def state(text: str, field: str) -> str:
    if text not in STATES:
        raise InvalidInput(_("use one of %s") % ", ".join(STATES), field)
    return text


_READERS = {**filters.READERS, "topic": topic, "state": state}
FIELDS = tuple(field.name for field in fields(Filter))
