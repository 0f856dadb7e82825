"""The queue of events: locked, marked, set aside.

Receivers lock what they work on until their transaction ends, and pass over what others have
locked where the database can do that. A killed one leaves everything as it was.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import connection

from msgplatform.core.data import sql
from notify.feed.models import EventQueue

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


def lock(topic: str, status: int, limit: int) -> list[Event]:
    """Lock the oldest events of a topic with this status, in the caller's transaction."""
    return _locked(
        f"topic = %s AND status = {int(status)} ORDER BY qid LIMIT {int(limit)}",
        (topic,),
        "eventqueue_to_handle",
    )


def lock_these(qids: Sequence[int], status: int) -> list[Event]:
    """Lock those of these events that still have this status, in the caller's transaction."""
    places = ", ".join(["%s"] * len(qids))
    condition = f"qid IN ({places}) AND status = {int(status)} ORDER BY qid"
    return _locked(condition, qids, "PRIMARY")


def waiting(topic: str) -> bool:
    """Whether an event of this topic waits: an idle turn asks only this, without a lock."""
    return EventQueue.objects.filter(topic=topic, status=_STATUS.WAITING).exists()


def mark(qids: Collection[int], status: int, now: datetime | None = None) -> None:
    """Give these events, which the caller has locked, a status; `now` if they are handled."""
    if qids:
        changes = {"status": int(status)} | ({"handle_date": now} if now else {})
        EventQueue.objects.filter(qid__in=qids).update(**changes)


def set_aside(qid: int, error: Exception) -> None:
    """Mark an event that failed, with the reason, until somebody replays it."""
    reason = f"{type(error).__name__}: {error}"[:500]
    rows = EventQueue.objects.filter(qid=qid).exclude(status=_STATUS.HANDLED)
    sql.retrying(lambda: rows.update(status=_STATUS.SET_ASIDE, reason=reason))


def _locked(condition: str, parameters: Sequence[str | int], index: str) -> list[Event]:
    # SQLite's one writer is the caller.
    locking, hint = "", ""
    if connection.features.has_select_for_update:
        skip = connection.features.has_select_for_update_skip_locked
        locking = " FOR UPDATE SKIP LOCKED" if skip else " FOR UPDATE"
        hint = f" FORCE INDEX ({index})"
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT qid, biz_id, topic, kind, uid, data, position "  # noqa: S608
            f"FROM eventqueue{hint} WHERE {condition}{locking}",
            list(parameters),
        )
        return [Event(*row) for row in cursor.fetchall()]
