"""Feed's bulk actions: events that were set aside wait again, or are dismissed."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial

from django.db.models import QuerySet
from django.utils.translation import gettext, gettext_lazy as _
from msgspec.structs import replace

from msgplatform.core.data import ids as id_numbers, sql, transactions
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.actions import BulkAction, Ending
from msgplatform.core.flows.bulk_pages import Described, Preview, Tally
from msgplatform.core.flows.messages import Check, Fields, FilterField, Values, named
from msgplatform.core.flows.page import Hit
from msgplatform.messages import filters
from msgplatform.messages.bulk import Selected, bulk_action
from notify.feed.messages import states as message_lines
from notify.feed.messages.index import EVENTS, TOPIC
from notify.feed.models import EventQueue, FeedUser
from notify.feed.monitor import failures

_STATUS = EventQueue.Status


def _with_answer(values: Values, ids: Sequence[int]) -> set[int]:
    rows = EventQueue.objects.filter(qid__in=ids).order_by().values_list("qid", "reason")
    return {qid for qid, reason in rows if failures.answer(reason) == values["answer"]}


_SOURCE = replace(
    EVENTS,
    indexes=[named(("ids",), lambda values: values["ids"]), *EVENTS.indexes],
    checks=[Check(("answer",), _with_answer)],
)


@transactions.repeatable
def resend_events(qids: Collection[int], start: datetime | None = None) -> int:
    """Let these events wait again if they are set aside; returns the number of events. `position`
    stays, so that an event in slices goes on where it failed. Events that failed after `start` are
    left alone."""
    events = _take_back(qids, start)
    return events.update(status=_STATUS.WAITING, reason="", handle_date=None)


@transactions.repeatable
def dismiss_events(qids: Collection[int], start: datetime | None = None) -> int:
    """End these events unhandled if they are set aside; returns their number. `reason` stays.
    Events that failed after `start` are left alone."""
    events = _take_back(qids, start)
    merging = FeedUser.Merging
    # The authors stay pushed. The next change of their relations may start a merge again.
    for event in events.filter(kind=EventQueue.Kind.MERGE):
        author = FeedUser.objects.filter(biz_id=event.biz_id, uid=event.uid)
        author.filter(merging=merging.BECOMING).update(merging=merging.PUSHED)
    return events.update(status=_STATUS.HANDLED, handle_date=sql.now())


def _take_back(qids: Collection[int], start: datetime | None) -> QuerySet[EventQueue]:
    """Lock the events of `qids` that are set aside, and were before `start`, in the caller's
    transaction, and remove them from the failures; returns the events."""
    # WHERE has the id alone, so that the database locks no other rows.
    rows = EventQueue.objects.select_for_update().filter(qid__in=qids).order_by("qid")
    events = [
        event
        for event in rows
        if event.status == _STATUS.SET_ASIDE
        and not (start and event.handle_date and event.handle_date > start)
    ]
    failures.take_back(events)
    return EventQueue.objects.filter(qid__in=[event.qid for event in events])


def select_events(
    values: Values,
    started_at: datetime,
    change: Callable[[Sequence[int], datetime], int] = resend_events,
) -> Selected:
    """Select events that are set aside. Events after the job's start are left out, so it ends;
    those that failed anew since are left alone."""
    end = id_numbers.first_id_at(started_at)
    until = min(values.get("until", end), end)
    values = {**values, "until": until, "state": "set_aside"}
    return Selected([_SOURCE], values, lambda qids: change(qids, started_at))


_ENDINGS: Mapping[int | None, Ending] = {
    EventQueue.Status.SET_ASIDE: "failed", EventQueue.Status.WAITING: "waiting",
    EventQueue.Status.IN_SLICES: "waiting",
}  # fmt: skip

_FIELDS: Fields = {
    "topic": TOPIC,
    "biz": filters.BIZ,
    "user": FilterField(_("User"), _("The business system's own id of a user, exact")),
    "answer": filters.answer(
        _("The class of their error, as the page Failures shows it: ValueError")
    ),
    "since": filters.since(_("Posted at this time or later")),
    "until": filters.until(_("Posted before this time")),
    "ids": filters.ids(_("Ids of events, at most 500")),
}


def _select_message(id: str, recipient: str, _by: str) -> tuple[Selected, list[int]]:
    """Select an event, if it is set aside. A post and its event have the same id and one card."""
    qid = filters.number(id)
    if recipient not in ("", str(qid)) or not EventQueue.objects.filter(pk=qid).exists():
        raise InvalidInput(gettext("there is no such event"), "id")
    return select_events({"ids": (qid,)}, sql.now()), [qid]


def _describe(qids: Sequence[int]) -> Described[tuple[str, str]]:
    rows = EventQueue.objects.filter(qid__in=qids).values_list("qid", "topic", "kind")
    for qid, topic, kind in rows:
        yield qid, (topic, kind), id_numbers.datetime_of(qid)


def _show(events: Tally[tuple[str, str]], started_at: datetime) -> Preview:
    topics, kinds = EventQueue.Topic, EventQueue.Kind
    titles = {
        (topic, kind): f"{topics(topic).label} · {kinds(kind).label}"
        for topic, kind in events.groups
    }
    return events.preview(started_at, titles, list(message_lines.lines(events.sample).values()))


def outcome(qids: Sequence[str]) -> dict[str, Ending]:
    """The outcomes of resent events. A missing event was handled, because the cleaner deletes only
    handled events."""
    rows = EventQueue.objects.filter(qid__in=[int(qid) for qid in qids])
    statuses = dict(rows.order_by().values_list("qid", "status"))
    return {qid: _ENDINGS.get(statuses.get(int(qid)), "arrived") for qid in qids}


def lines(qids: Sequence[str]) -> list[Hit]:
    return list(message_lines.lines([int(qid) for qid in qids]).values())


ACTIONS: Mapping[str, BulkAction] = {
    "resend": bulk_action(
        select_events,
        title=_("Replay events that were set aside"),
        fields=_FIELDS,
        help=_("They wait for the dispatcher again, and go on where they failed. No timeline gets "
               "a post twice."),
        describe=_describe,
        show=_show,
        outcome=outcome,
        lines=lines,
        select_message=_select_message,
    ),
    "dismiss": bulk_action(
        partial(select_events, change=dismiss_events),
        title=_("Dismiss events that were set aside"),
        fields=_FIELDS,
        help=_("They are not tried any more: timelines that lack their posts or changes stay so. "
               "Lists show them as handled, with their reasons; statistics do not count them."),
        describe=_describe,
        show=_show,
    ),
}  # fmt: skip
