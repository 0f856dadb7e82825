"""Feed's bulk actions: what `run_bulk` does page by page, and the count that comes before."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.utils.translation import gettext_lazy as _

from msgplatform.core import bulk_cursor, flows
from msgplatform.core.bulk_cursor import BulkCursor
from msgplatform.core.data import sql
from msgplatform.core.errors import InvalidInput
from notify.feed.bulk.replay import SetAside, parse, replay

COUNT_MOST = 100_000
_COUNT_PAGE = 2000
_COUNT_STEPS = 200  # pages with few matches: the count must not take minutes

ACTIONS: Mapping[str, flows.BulkAction] = {
    "replay": flows.BulkAction(
        _("Replay events that were set aside"),
        {
            "topic": _("friend, vip or upkeep"),
            "biz": _("Name or id of a business system"),
            "user": _("The business system's own id of a user, exact"),
            "since": _("Posted at this time or later: 2026-11-20 14:30"),
            "until": _("Posted before this time"),
            "ids": _("Ids of events, at most 500"),
        },
        _("They wait for the dispatcher again, and go on where they failed. No timeline gets a "
          "post twice."),
    ),
}  # fmt: skip


def count(action: str, given: Mapping[str, Any]) -> flows.Counted:
    """How many events the action would change now; counted up to a bound."""
    chosen = _chosen(action, given, sql.now())
    return bulk_cursor.count(chosen.page, COUNT_MOST, _COUNT_PAGE, _COUNT_STEPS)


def step(action: str, given: Mapping[str, Any], cursor: str, limit: int) -> flows.Step:
    """The next page. A step that is repeated does nothing twice."""
    if not cursor:
        _chosen(action, given, sql.now())  # raises InvalidInput for a wrong filter
        return flows.Step(BulkCursor.begin(), 0)
    at = BulkCursor.read(cursor)
    page = _chosen(action, given, at.begun).page(at.position, limit)
    done = replay(page.ids) if page.ids else 0
    return flows.Step(at.moved_to(page.position), done)


def _chosen(action: str, given: Mapping[str, Any], begun: datetime) -> SetAside:
    if action not in ACTIONS:
        raise InvalidInput("there is no such bulk action", "action")
    return SetAside(parse(given, ACTIONS[action].filters), begun)
