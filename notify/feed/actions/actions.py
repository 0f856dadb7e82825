"""Feed's bulk actions: what `run_bulk` does page by page, and the count that comes before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.utils.translation import gettext_lazy as _

from msgplatform.api import filter_fields
from msgplatform.core import flows
from msgplatform.core.bulk import cursor as bulk_cursor
from msgplatform.core.bulk import preview as bulk_preview
from msgplatform.core.bulk.cursor import BulkCursor
from msgplatform.core.data import ids as id_numbers
from msgplatform.core.data import sql
from msgplatform.core.data.chunks import chunks
from msgplatform.messages.engine import read_filter
from notify.feed.actions import one_message
from notify.feed.actions.replay import SetAside, replay
from notify.feed.messages import lines as message_lines
from notify.feed.messages.index import TOPIC
from notify.feed.models import EventQueue

_ENDINGS: Mapping[int | None, flows.Ending] = {
    EventQueue.Status.SET_ASIDE: "failed", EventQueue.Status.WAITING: "waiting",
    EventQueue.Status.IN_SLICES: "waiting",
}  # fmt: skip
_CHUNK = 500

_FIELDS: flows.Fields = {
    "topic": TOPIC,
    "biz": filter_fields.BIZ,
    "user": flows.FilterField(_("User"), _("The business system's own id of a user, exact")),
    "answer": flows.FilterField(
        _("Answer"), _("The class of their error, as the page Failures shows it: ValueError")
    ),
    "since": filter_fields.since(_("Posted at this time or later")),
    "until": filter_fields.until(_("Posted before this time")),
    "ids": filter_fields.ids(_("Ids of events, at most 500")),
}


def count(given: Mapping[str, Any]) -> flows.Counted:
    """How many events the action would change now; counted up to a bound."""
    chosen = _selected(given, sql.now())
    return bulk_cursor.count(chosen.page)


def preview(given: Mapping[str, Any]) -> flows.Preview:
    """What the action would change now."""
    begun = sql.now()
    result = bulk_preview.tally(_selected(given, begun).page, _described)
    topics, kinds = EventQueue.Topic, EventQueue.Kind
    titles = {
        (topic, kind): f"{topics(topic).label} · {kinds(kind).label}"
        for topic, kind in result.groups
    }
    return result.preview(begun, titles, list(message_lines.lines(result.sample).values()))


def _described(qids: Sequence[int]) -> bulk_preview.Described[tuple[str, str]]:
    for some in chunks(qids, _CHUNK):
        rows = EventQueue.objects.filter(qid__in=some)
        for qid, topic, kind in rows.values_list("qid", "topic", "kind"):
            yield qid, (topic, kind), id_numbers.datetime_of(qid)


def outcome(qids: Sequence[str]) -> dict[str, flows.Ending]:
    """What became of events that wait again. One that is gone was handled: the cleaner deletes no
    others."""
    rows = EventQueue.objects.filter(qid__in=[int(qid) for qid in qids])
    statuses = dict(rows.order_by().values_list("qid", "status"))
    return {qid: _ENDINGS.get(statuses.get(int(qid)), "arrived") for qid in qids}


def step(
    given: Mapping[str, Any], cursor: str, limit: int, note: flows.Note = flows.unnoted
) -> flows.Step:
    """The next page. A step that is repeated does nothing twice."""
    if not cursor:
        _selected(given, sql.now())  # raises InvalidInput for a wrong filter
        return flows.Step(BulkCursor.begin(), 0)
    at = BulkCursor.read(cursor)
    page = _selected(given, at.begun).page(at.position, limit)
    if page.ids:
        note(page.ids)
    done = replay(page.ids) if page.ids else 0
    return flows.Step(at.moved_to(page.position), done)


def lines(qids: Sequence[str]) -> list[flows.Hit]:
    return list(message_lines.lines([int(qid) for qid in qids]).values())


def _selected(given: Mapping[str, Any], begun: datetime) -> SetAside:
    return SetAside(read_filter(_FIELDS, given), begun)


ACTIONS: Mapping[str, flows.BulkAction] = {
    "replay": flows.BulkAction(
        title=_("Replay events that were set aside"),
        fields=_FIELDS,
        help=_("They wait for the dispatcher again, and go on where they failed. No timeline gets "
               "a post twice."),
        count=count,
        preview=preview,
        step=step,
        outcome=outcome,
        lines=lines,
        resend=one_message.resend,
    ),
}  # fmt: skip
