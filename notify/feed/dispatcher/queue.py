"""The queue of events: locked, marked, set aside.

Receivers lock what they work on until their transaction ends, and pass over what others have
locked where the database can do that. A killed one leaves everything as it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from django.db import connection, transaction

from msgplatform.core.data import sql
from notify.feed.models import EventQueue
from notify.feed.monitor import counters

_STATUS = EventQueue.Status


@dataclass(frozen=True, slots=True)
class Event:
    """A locked event; `created` as the database writes it."""

    qid: int
    biz: int
    topic: str
    kind: str
    uid: str
    data: str
    position: str


def lock(
    topic: str, status: int, limit: int, since: int = 0, without: Collection[int] = ()
) -> list[Event]:
    """Lock the oldest events of a topic with this status, in the caller's transaction; only those
    from the id `since` on, and none of `without`."""
    condition = _oldest(status, limit, without)
    return _locked(condition, (topic, since, *without), "eventqueue_to_handle")


def lock_these(qids: Sequence[int], status: int) -> list[Event]:
    """Lock those of these events that still have this status, in the caller's transaction."""
    places = ", ".join(["%s"] * len(qids))
    condition = f"qid IN ({places}) AND status = {int(status)} ORDER BY qid"
    return _locked(condition, qids, "PRIMARY")


def waiting(topic: str, since: int = 0) -> bool:
    """Whether an event of this topic waits, from the id `since` on: an idle turn asks only this,
    without a lock."""
    hint = _hint("eventqueue_to_handle")
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT 1 FROM eventqueue{hint} WHERE {_oldest(_STATUS.WAITING, 1)}",  # noqa: S608
            (topic, since),
        )
        return cursor.fetchone() is not None


def mark(qids: Collection[int], status: int, now: datetime | None = None) -> None:
    """Give these events, which the caller has locked, a status; `now` if they are handled."""
    if qids:
        changes = {"status": int(status)} | ({"handle_date": now} if now else {})
        EventQueue.objects.filter(qid__in=qids).update(**changes)


def set_aside(qid: int, error: Exception) -> None:
    """Mark an event that failed, with the reason, until somebody replays it."""
    reason = f"{type(error).__name__}: {error}"[:500]
    sql.retrying(partial(_set_aside_once, qid, reason))


@transaction.atomic
def _set_aside_once(qid: int, reason: str) -> None:
    event = EventQueue.objects.filter(qid=qid).values_list("biz_id", "topic").first()
    others = (_STATUS.HANDLED, _STATUS.SET_ASIDE)
    rows = EventQueue.objects.filter(qid=qid).exclude(status__in=others)
    if event and rows.update(status=_STATUS.SET_ASIDE, reason=reason):
        biz, topic = event
        counters.add(Counter([counters.key(biz, counters.SET_ASIDE, topic)]), sql.now())


def _oldest(status: int, limit: int, without: Collection[int] = ()) -> str:
    others = f"AND qid NOT IN ({', '.join(['%s'] * len(without))})" if without else ""
    return (
        f"topic = %s AND status = {int(status)} AND qid >= %s {others} "
        f"ORDER BY qid LIMIT {int(limit)}"
    )


def _hint(index: str) -> str:
    # Left to itself MariaDB may read all of a topic in order to find what is above an id.
    return f" FORCE INDEX ({index})" if connection.vendor == "mysql" else ""


def _locked(condition: str, parameters: Sequence[str | int], index: str) -> list[Event]:
    locking = ""  # SQLite's one writer is the caller
    if connection.features.has_select_for_update:
        skip = connection.features.has_select_for_update_skip_locked
        locking = " FOR UPDATE SKIP LOCKED" if skip else " FOR UPDATE"
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT qid, biz_id, topic, kind, uid, data, position "  # noqa: S608
            f"FROM eventqueue{_hint(index)} WHERE {condition}{locking}",
            list(parameters),
        )
        return [Event(*row) for row in cursor.fetchall()]
