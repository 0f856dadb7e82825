"""Events that were set aside wait again, and go on where they failed; or they are dismissed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from django.db import transaction
from django.db.models import QuerySet

from msgplatform.core.data import ids as id_numbers
from msgplatform.core.data import sql, transactions
from msgplatform.core.flows import Applied
from msgplatform.core.flows.bulk_pages import Page, read_id
from msgplatform.core.flows.messages import Values
from notify.feed.models import EventQueue, FeedUser
from notify.feed.monitor import failures

SCANNED = 5000  # events that one page looks at
_READ = ("qid", "biz_id", "uid", "reason")
_STATUS = EventQueue.Status


class SetAside:
    """Events that are set aside, in the order of their ids; none that came after
    `started_at`, so that a job has an end."""

    def __init__(self, values: Values, started_at: datetime) -> None:
        newest = id_numbers.first_id_at(started_at)
        self._values = values
        self._until = min(values.get("until", newest), newest)

    def apply(self, ids: Sequence[int]) -> Applied:
        return Applied(resend_events(ids))

    def page(self, position: str, limit: int) -> Page:
        """The next events after `position`, which is the last event that was looked at."""
        after = max(read_id(position), self._values.get("since", 0) - 1)
        if "ids" not in self._values:
            read = self._read(after)
        else:
            named_ids = [qid for qid in self._values["ids"] if after < qid < self._until]
            rows = EventQueue.objects.filter(qid__in=named_ids, status=_STATUS.SET_ASIDE)
            if "topic" in self._values:
                rows = rows.filter(topic=self._values["topic"])
            read = list(rows.order_by("qid").values_list(*_READ))
        matches: list[int] = []
        values = self._values
        for qid, biz, uid, reason in read:
            if (
                values.get("biz", biz) == biz
                and values.get("user", uid) == uid
                and values.get("answer") in (None, failures.answer(reason))
            ):
                matches.append(qid)
                if len(matches) == limit:
                    return Page(matches, str(qid))
        return Page(matches, str(read[-1][0]) if len(read) == SCANNED else "")

    def _read(self, after: int) -> list[tuple[int, int, str, str]]:
        """The oldest SCANNED events: they are among the oldest SCANNED of each topic."""
        topics = [self._values["topic"]] if "topic" in self._values else EventQueue.Topic.values
        event_rows: list[tuple[int, int, str, str]] = []
        for name in topics:
            rows = EventQueue.objects.filter(status=_STATUS.SET_ASIDE)
            rows = rows.filter(qid__gt=after, qid__lt=self._until)
            rows = sql.of_one(rows, "topic", name).order_by("topic", "qid")
            event_rows += rows.values_list(*_READ)[:SCANNED]
        return sorted(event_rows)[:SCANNED]


class Dismissed(SetAside):
    """As SetAside; the events end."""

    def apply(self, ids: Sequence[int]) -> Applied:
        return Applied(dismiss_events(ids))


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
