"""Events of the queue, stored in the transaction that changes posts or relations."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from msgplatform.core.data import ids, sql
from notify.feed.models import EventQueue

COLUMNS = (
    "qid", "biz_id", "topic", "kind", "status", "data", "uid", "create_date", "position", "reason",
)  # fmt: skip


class Event(msgspec.Struct, frozen=True):
    """An event of upkeep, after relations or posts changed.

    `uid` is the user whose posts or timeline change; `data` depends on the kind.
    """

    biz: int
    uid: str
    kind: EventQueue.Kind
    data: Mapping[str, str] = msgspec.field(default_factory=dict)


def add(events: Sequence[Event], block: ids.Block, now: datetime) -> None:
    """Store the events in the caller's transaction, with ids of `block`, which no other rows may
    use."""
    numbers = block.ids([ids.bucket(event.biz, event.uid) for event in events])
    rows = [
        (qid, e.biz, "upkeep", str(e.kind), 0, json.dumps(e.data) if e.data else "", e.uid, now,
         "", "")
        for qid, e in zip(numbers, events, strict=True)
    ]  # fmt: skip
    insert(rows)


def insert(rows: Sequence[tuple[object, ...]]) -> None:
    """Insert rows of COLUMNS. Existing events do not change."""
    sql.insert_or_keep(EventQueue._meta.db_table, COLUMNS, rows)
