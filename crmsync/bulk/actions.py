"""CRM sync's bulk actions: what `run_bulk` does page by page, and the count that comes before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Protocol

from django.utils.translation import gettext_lazy as _

from crmsync.bulk.filters import Filter, parse
from crmsync.bulk.pages import OpenEntries, Page, Records
from crmsync.recovery import entries
from crmsync.recovery.resend import resend
from msgplatform.core import bulk_cursor, flows
from msgplatform.core.bulk_cursor import BulkCursor
from msgplatform.core.data import sql
from msgplatform.core.errors import InvalidInput

COUNT_MOST = 100_000
_COUNT_PAGE = 2000
_COUNT_STEPS = 200  # pages that a count reads at most: with few matches it would take minutes
BY = "bulk"  # as whoever handled an entry; the bulk job's own row says who started it


class Chosen(Protocol):
    def page(self, position: str, limit: int) -> Page: ...


@dataclass(frozen=True)
class _Action:
    chosen: Callable[[Filter, datetime], Chosen]
    apply: Callable[[Sequence[int], datetime], int]
    shown: flows.BulkAction


_CRM = _("Name or id of a CRM")
_POLICY = _("Its id, or source/CRM such as hive/sales")
_ENTRIES = {
    "crm": _CRM,
    "policy": _POLICY,
    "error_class": _("Exact, such as retry, invalid, mapping or unknown"),
    "since": _("In the recovery log since this time or later: 2026-11-20 14:30"),
    "until": _("In the recovery log before this time"),
    "ids": _("Ids of entries of the recovery log, at most 500"),
}

ACTIONS: Mapping[str, _Action] = {
    "retry": _Action(
        OpenEntries,
        lambda ids, begun: sql.retrying(partial(entries.retry, ids, BY)),
        flows.BulkAction(
            _("Try dead records again"),
            _ENTRIES,
            _("Each gets all its tries again. Rows that the mapping refused are read again."),
        ),
    ),
    "dismiss": _Action(
        OpenEntries,
        lambda ids, begun: sql.retrying(partial(entries.dismiss, ids, BY)),
        flows.BulkAction(
            _("Dismiss dead records"),
            _ENTRIES,
            _("These records are not sent. Later changes at the source are sent as usual."),
        ),
    ),
    "resend": _Action(
        Records,
        lambda ids, begun: resend(ids, begun, BY),
        flows.BulkAction(
            _("Send records again"),
            {
                "crm": _CRM,
                "policy": _POLICY,
                "key": _("Exact: the key of the row at its source"),
                "since": _("Last changed at this time or later: 2026-11-20 14:30"),
                "until": _("Last changed before this time"),
            },
            _("Each record is sent in its newest version, also when it is confirmed. Choose a CRM "
              "or a policy. Dismissed records are left alone."),
        ),
    ),
}  # fmt: skip


def count(action: str, given: Mapping[str, Any]) -> flows.Counted:
    """How many rows the action would touch now, counted up to a bound."""
    _chosen_action, chosen = _chosen(action, given, sql.now())
    return bulk_cursor.count(chosen.page, COUNT_MOST, _COUNT_PAGE, _COUNT_STEPS)


def step(action: str, given: Mapping[str, Any], cursor: str, limit: int) -> flows.Step:
    """The next page. A step that is repeated does nothing twice."""
    # The first step fixes the time at which the job began, and does nothing else.
    if not cursor:
        _chosen(action, given, sql.now())  # refuses a wrong filter
        return flows.Step(BulkCursor.begin(), 0)
    at = BulkCursor.read(cursor)
    chosen_action, chosen = _chosen(action, given, at.begun)
    page = chosen.page(at.position, limit)
    done = chosen_action.apply(page.ids, at.begun) if page.ids else 0
    return flows.Step(at.moved_to(page.position), done)


def _chosen(action: str, given: Mapping[str, Any], begun: datetime) -> tuple[_Action, Chosen]:
    if action not in ACTIONS:
        raise InvalidInput("there is no such bulk action", "action")
    found = ACTIONS[action]
    return found, found.chosen(parse(given, found.shown.filters), begun)
