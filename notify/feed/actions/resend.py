"""Events that were set aside wait again, and go on where they failed; or they are dismissed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime

from django.db import transaction
from django.db.models import QuerySet

from msgplatform.core.data import ids as id_numbers
from msgplatform.core.data import sql, transactions
from msgplatform.core.flows.messages import Check, Values, named
from msgplatform.messages.bulk import Selected
from notify.feed.messages.index import EVENTS
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


def resend_events(qids: Collection[int]) -> int:
    """Let these events wait again if they are set aside; how many. `position` is kept, so that an
    event in slices goes on where it failed."""

    @transaction.atomic
    def once() -> int:
        return _take_back(qids).update(status=_STATUS.WAITING, reason="")

    return transactions.retrying(once)


def dismiss_events(qids: Collection[int]) -> int:
    """End these events as they are if they are set aside; how many. `reason` is kept."""

    @transaction.atomic
    def once() -> int:
        events = _take_back(qids)
        merging = FeedUser.Merging
        # Their posts are still pushed; the next change of their relations may begin anew.
        for event in events.filter(kind=EventQueue.Kind.MERGE):
            author = FeedUser.objects.filter(biz_id=event.biz_id, uid=event.uid)
            author.filter(merging=merging.BECOMING).update(merging=merging.PUSHED)
        return events.update(status=_STATUS.HANDLED, handle_date=sql.now())

    return transactions.retrying(once)


def _take_back(qids: Collection[int]) -> QuerySet[EventQueue]:
    """Lock the events that are set aside in the caller's transaction, and take them out of the
    failures; returns them."""
    # By id alone, so that the database locks these and no others.
    rows = EventQueue.objects.select_for_update().filter(qid__in=qids).order_by("qid")
    events = [event for event in rows if event.status == _STATUS.SET_ASIDE]
    failures.take_back(events)
    return EventQueue.objects.filter(qid__in=[event.qid for event in events])


def select_events(
    values: Values, started_at: datetime, change: Callable[[Sequence[int]], int] = resend_events
) -> Selected:
    """Events that are set aside; none that came after the job began, so that it has an end."""
    end = id_numbers.first_id_at(started_at)
    until = min(values.get("until", end), end)
    return Selected([_SOURCE], {**values, "until": until, "state": "set_aside"}, change)
