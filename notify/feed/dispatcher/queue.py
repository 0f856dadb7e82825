"""The queue of events: find, lock and mark events, and set aside events that fail.

Receivers lock their events until their transaction ends, and skip events that others have locked
where the database can do that. A killed receiver changes nothing.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from datetime import datetime

import msgspec
from django.db import connection, transaction

from msgplatform.core import alerts
from msgplatform.core.data import engines, sql, transactions
from msgplatform.core.lazy_text import lazy_message
from notify.feed.models import EventQueue
from notify.feed.monitor import counters, failures
from notify.feed.monitor.failures import SET_ASIDE, SET_ASIDE_KEY

_STATUS = EventQueue.Status
# An event may begin to wait behind the front: committed late, replayed, or given back by a dead
# receiver. So the search starts from the beginning every few seconds; less often when this search
# takes long, so that it stays a small part of the work.
_MIN_SECONDS, _MAX_SECONDS = 2.0, 10.0
_SEARCH_FACTOR = 20  # seconds between two such searches for each second of a search


class Event(msgspec.Struct, frozen=True):
    """A locked event; see `EventQueue` for the fields."""

    qid: int
    biz: int
    topic: str
    kind: str
    uid: str
    data: str
    position: str


def lock(
    topic: str, status: int, limit: int, since: int = 0, skipped_ids: Collection[int] = ()
) -> list[Event]:
    """Lock the oldest events of a topic with this status, in the caller's transaction: events from
    the id `since` on, and none of `skipped_ids`."""
    condition = _oldest(status, limit, skipped_ids)
    return _lock(condition, (topic, since, *skipped_ids), "eventqueue_to_handle")


def lock_by_id(qids: Sequence[int], status: int) -> list[Event]:
    """Lock the events of `qids` that still have this status, in the caller's transaction."""
    places = ", ".join(["%s"] * len(qids))
    condition = f"qid IN ({places}) AND status = {int(status)} ORDER BY qid"
    return _lock(condition, qids, "PRIMARY")


def is_waiting(topic: str, since: int = 0) -> bool:
    """True if an event of this topic waits, from the id `since` on. Locks nothing: an idle turn has
    this query only."""
    hint = engines.of().force_index("eventqueue_to_handle")
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT 1 FROM eventqueue {hint} WHERE {_oldest(_STATUS.WAITING, 1)}",  # noqa: S608
            (topic, since),
        )
        return cursor.fetchone() is not None


def mark(qids: Collection[int], status: int, now: datetime | None = None) -> None:
    """Set the status of these events, which the caller has locked. `now`: the time of handling."""
    if qids:
        changes = {"status": int(status)} | ({"handle_date": now} if now else {})
        EventQueue.objects.filter(qid__in=qids).update(**changes)


def set_aside(qid: int, error: Exception) -> alerts.AlertEvent:
    """Set a failed event aside, with the reason, until a person replays it. Returns the alert."""
    reason = f"{type(error).__name__}: {error}"[:500]

    @transaction.atomic
    def mark_failed() -> None:
        event = EventQueue.objects.filter(qid=qid).values_list("biz_id", "topic").first()
        # Another dispatcher may have handled the event, or set it aside, at the same time: only the
        # dispatcher whose UPDATE changes the row counts the failure.
        others = (_STATUS.HANDLED, _STATUS.SET_ASIDE)
        rows = EventQueue.objects.filter(qid=qid).exclude(status__in=others)
        now = sql.now()
        if event and rows.update(status=_STATUS.SET_ASIDE, reason=reason, handle_date=now):
            biz, topic = event
            failures.add(qid, topic, reason, now)
            counters.add(Counter([counters.key(biz, counters.SET_ASIDE, topic)]), now)

    transactions.retrying(mark_failed)
    return alerts.AlertEvent(
        kind=SET_ASIDE,
        subject=lazy_message("Feed: event %(id)s was set aside", id=str(qid)),
        text=reason,
        key=SET_ASIDE_KEY,
    )


class Front:
    """The waiting events of a topic, the oldest first, and the id from which they begin.

    A handled event leaves the index of waiting events only when no older transaction runs on the
    server. During a report or a backup of an hour, a search from the beginning would pass over all
    events handled in that hour, in each batch.

    The front is remembered only while batches are full; a short queue is always searched as a
    whole. For the receiver's own thread.
    """

    def __init__(self, topic: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._topic, self._clock = topic, clock
        self._since, self._until = 0, 0.0  # the id from which the search starts, and until when

    def has_events(self) -> bool:
        """True if an event waits from the front on. If none waits, the next call searches all."""
        if self._clock() >= self._until:
            self._since = 0
        is_found = is_waiting(self._topic, self._since)
        if not is_found:
            self._since = 0
        return is_found

    def lock(self, limit: int, skipped_ids: Collection[int] = ()) -> list[Event]:
        """Lock the oldest events but for `skipped_ids`, in the caller's transaction."""
        start = self._clock()
        events = lock(self._topic, _STATUS.WAITING, limit, self._since, skipped_ids)
        if not self._since:
            now = self._clock()
            pause = max(_MIN_SECONDS, _SEARCH_FACTOR * (now - start))
            self._until = now + min(_MAX_SECONDS, pause)
        return events

    def move(self, events: Sequence[Event], is_full: bool) -> None:
        """Move the front behind these events. Call it after their commit. `is_full`: True if the
        batch had as many events as its limit."""
        self._since = events[-1].qid if events and is_full else 0


def _oldest(status: int, limit: int, skipped_ids: Collection[int] = ()) -> str:
    others = f"AND qid NOT IN ({', '.join(['%s'] * len(skipped_ids))})" if skipped_ids else ""
    return (
        f"topic = %s AND status = {int(status)} AND qid >= %s {others} "
        f"ORDER BY qid LIMIT {int(limit)}"
    )


def _lock(condition: str, parameters: Sequence[str | int], index: str) -> list[Event]:
    engine = engines.of()
    # Without the hint MariaDB may read all events of a topic to find events above an id.
    hint = engine.force_index(index)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT qid, biz_id, topic, kind, uid, data, position "  # noqa: S608
            f"FROM eventqueue {hint} WHERE {condition} {engine.skip_locked}",
            list(parameters),
        )
        return [Event(*row) for row in cursor.fetchall()]
