"""The filters of Feed's search, read from texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from msgplatform.api import filter_fields, filters
from msgplatform.core.errors import InvalidInput
from notify.feed.models import EventQueue

# States that are asked of posts. The cleaner deletes handled events, so "handled" means that a post
# has no open event.
DELETED, HANDLED = "deleted", "handled"
_STATUS = EventQueue.Status
# States of events that are not handled. A search for one reads the events, which are few and in an
# index, instead of the posts.
OPEN = {
    "waiting": _STATUS.WAITING, "in_slices": _STATUS.IN_SLICES, "set_aside": _STATUS.SET_ASIDE,
}  # fmt: skip
STATES = (*OPEN, HANDLED, DELETED)
TOPIC = filter_fields.choice(gettext_lazy("Topic"), EventQueue.Topic)


@dataclass(frozen=True, slots=True)
class Filter:
    """What was given; None where nothing was.

    `since` and `until` are ids, not times: since <= id < until. `kind` is that of the post
    (`src_type`), not `EventQueue.Kind`.
    """

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
        """Whether to search events instead of posts. Upkeep has events and no posts."""
        return self.state in OPEN or self.topic == EventQueue.Topic.UPKEEP


def parse(given: Mapping[str, Any], allowed: Iterable[str]) -> Filter:
    """The filter that these texts give; empty ones count as not given.

    Raises InvalidInput naming the field.
    """
    filter = Filter(**filters.values(given, _READERS, allowed))
    if filter.topic == EventQueue.Topic.UPKEEP and filter.state == DELETED:
        raise InvalidInput(_("upkeep has no posts that could be deleted"), "state")
    return filter


# -- readers (`msgplatform.api.filters`) ---------------------------------------------------------
def read_topic(text: str, field: str) -> str:
    if text not in EventQueue.Topic.values:
        raise InvalidInput(_("use one of %s") % ", ".join(EventQueue.Topic.values), field)
    return text


def read_state(text: str, field: str) -> str:
    if text not in STATES:
        raise InvalidInput(_("use one of %s") % ", ".join(STATES), field)
    return text


_READERS = {**filters.READERS, "topic": read_topic, "state": read_state}
