"""Notify's bulk actions: what `run_bulk` does page by page, and the count that comes before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Protocol

from django.utils.translation import gettext_lazy as _

from msgplatform.api import filter_fields
from msgplatform.core import flows
from msgplatform.core.bulk import cursor as bulk_cursor
from msgplatform.core.bulk import preview as bulk_preview
from msgplatform.core.bulk.cursor import BulkCursor, Page
from msgplatform.core.data import sql
from msgplatform.core.flows.messages import Values
from msgplatform.messages.engine import read_filter
from notify.actions import fill_missing, one_message, preview, replay
from notify.actions.requeue import Requeue
from notify.actions.send_again import FAILED
from notify.messages.index import EVENT_TYPE, SUBSCRIPTION, statuses


class Job(Protocol):
    """One action with its filter. `page` reads ids after a position, `apply` acts on them."""

    def page(self, position: str, limit: int) -> Page: ...
    def apply(self, ids: Sequence[int]) -> int: ...


_JOBS: Mapping[str, Callable[[Values, datetime], Job]] = {
    "requeue": Requeue,
    "replay": replay.Replay,
    "replay_failed": replay.ReplayFailed,
    "resplit": fill_missing.Resplit,
}


def _action(
    name: str, title: flows.Text, fields: flows.Fields, help: flows.Text, **more: Any
) -> flows.BulkAction:
    return flows.BulkAction(
        title=title,
        fields=fields,
        help=help,
        count=partial(count, name),
        preview=partial(preview_job, name),
        step=partial(step, name),
        lines=preview.lines,
        **more,
    )


_FAILED = statuses(
    FAILED.values(),
    _("Poison ones need somebody to look at them first"),
    nothing=_("exhausted, unless ids are given"),
)


def count(action: str, given: Mapping[str, Any]) -> flows.Counted:
    """How many deliveries (for a re-split: messages) the action would look at, up to a bound."""
    job = _job(action, given, sql.now())
    return bulk_cursor.count(job.page)


def preview_job(action: str, given: Mapping[str, Any]) -> flows.Preview:
    """What the action would change now."""
    begun = sql.now()
    job = _job(action, given, begun)
    if action == "resplit":
        return preview.of_messages(bulk_preview.tally(job.page, preview.messages), begun)
    return preview.of_deliveries(bulk_preview.tally(job.page, preview.deliveries), begun)


def step(
    action: str, given: Mapping[str, Any], cursor: str, limit: int, note: flows.Note = flows.unnoted
) -> flows.Step:
    """The next page. A step that is repeated does nothing twice."""
    if not cursor:
        # Only where it begins: what comes later is not the job's. A wrong filter is refused here.
        _job(action, given, sql.now())
        return flows.Step(BulkCursor.begin(), 0)
    at = BulkCursor.read(cursor)
    job = _job(action, given, at.begun)
    page = job.page(at.position, limit)
    if page.ids and ACTIONS[action].outcome:
        note(page.ids)
    done = job.apply(page.ids) if page.ids else 0
    return flows.Step(at.moved_to(page.position), done)


def _job(action: str, given: Mapping[str, Any], begun: datetime) -> Job:
    fields, required = ACTIONS[action].fields, ACTIONS[action].required
    return _JOBS[action](read_filter(fields, given, required), begun)


ACTIONS: Mapping[str, flows.BulkAction] = {
    "requeue": _action(
            "requeue",
            _("Send failed deliveries again"),
            {
                "subscription": SUBSCRIPTION,
                "biz": filter_fields.BIZ,
                "status": _FAILED,
                "answer": flows.FilterField(
                    _("Answer"),
                    _("How the last attempt ended, as the page Failures shows it: HTTP 503"),
                ),
                "event_type": EVENT_TYPE,
                "since": filter_fields.SINCE,
                "until": filter_fields.UNTIL,
                "ids": filter_fields.ids(
                    _("Ids of deliveries or of messages, at most 500. Without a status: "
                      "exhausted, poison and skipped ones; delivered can be asked for too")
                ),
            },
            _("Each delivery gets all its attempts anew; the log of earlier attempts stays. "
              "Deliveries that are named by id may be archived: they are brought back."),
            outcome=preview.outcome,
            resend=one_message.resend,
    ),
    "replay": _action(
            "replay",
            _("Replay since a time"),
            {
                "subscription": SUBSCRIPTION,
                "since": filter_fields.SINCE,
                "until": filter_fields.UNTIL,
                "event_type": EVENT_TYPE,
            },
            _("Everything that the subscription should have got is sent again, even what was "
              "delivered. Archived messages are brought back for it."),
            outcome=preview.outcome,
            required=("subscription", "since"),
    ),
    "replay_failed": _action(
            "replay_failed",
            _("Replay what never succeeded"),
            {
                "subscription": SUBSCRIPTION,
                "biz": filter_fields.BIZ,
                "since": filter_fields.SINCE,
                "until": filter_fields.UNTIL,
                "event_type": EVENT_TYPE,
            },
            _("Exhausted, poison and skipped deliveries are sent again; deliveries that wait for "
              "another attempt are sent now. Archived messages are brought back for it."),
            outcome=preview.outcome,
            required=("since",),
    ),
    "resplit": _action(
            "resplit",
            _("Make missing deliveries"),
            {
                "biz": filter_fields.BIZ,
                "since": filter_fields.SINCE,
                "until": filter_fields.UNTIL,
                "event_type": EVENT_TYPE,
                "subscription": replace(
                    SUBSCRIPTION, help=_("Only for this subscription; empty: for all")
                ),
            },
            _("Each message gets the deliveries that it lacks, such as those for a newer "
              "subscription. Existing deliveries and archived messages stay as they are. The count "
              "is of messages that are looked at."),
            required=("biz", "since"),
    ),
}  # fmt: skip
