"""The texts that are sent, made once for all subscriptions that get a message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db import connection

from msgplatform.core.data import transactions
from msgplatform.core.data.chunks import chunks
from notify import orders
from notify.models import BizMsg

_CHUNK = 500
# Larger payloads are read when their order is made: a page of messages stays a few megabytes.
INLINE_BYTES = 8 * 1024
# Bytes of texts that `Texts` keeps for a turn.
_KEPT_BYTES = 16 * 1024 * 1024

# The time is read as text, and whole numbers are written into the statement: converted and escaped
# one by one, they would cost more than all the rest.
# The idempotency key is looked up by primary key within the statement for a whole page of messages.
_KEY = "(SELECT `key` FROM idempotency WHERE idempotency.id = biz_msg.id)"
_COLUMNS = f"id, biz_id, event_type, channel, {_KEY}, CAST(created_at AS CHAR)"
_SIZED = (
    f"{_COLUMNS}, LENGTH(payload), CASE WHEN LENGTH(payload) <= {INLINE_BYTES} THEN payload END"
)
_UNSIZED = f"{_COLUMNS}, 0, NULL"


@dataclass(slots=True)
class Message:
    """What an order needs of a message; `text` is None until a large payload is read.

    `key` is the idempotency key with which it was handed over, '' without one, and when that is no
    longer remembered. `size` is about how many bytes the message takes in an order.
    """

    id: int
    biz_id: int
    event_type: str
    channel: str
    key: str
    created_at: str
    size: int
    text: str | None


def lock_accepted(limit: int, payloads: bool = True) -> list[Message]:
    """Lock the first messages that wait to be split, by id, and pass over those that another maker
    has locked, where the database can do that. Without `payloads` size and text are unknown."""
    if not connection.features.has_select_for_update:  # SQLite: this process is its one writer
        lock = ""
    elif connection.features.has_select_for_update_skip_locked:
        lock = " FOR UPDATE SKIP LOCKED"
    else:
        lock = " FOR UPDATE"
    # Left to itself MariaDB may go through all messages by their ids.
    index = "FORCE INDEX (biz_msg_to_split)" if connection.vendor == "mysql" else ""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {_SIZED if payloads else _UNSIZED} FROM biz_msg {index} "  # noqa: S608
            f"WHERE state = {int(BizMsg.State.ACCEPTED)} ORDER BY id LIMIT {int(limit)}{lock}"
        )
        return [_message(row) for row in cursor.fetchall()]


def texts(messages: Iterable[Message]) -> dict[int, str]:
    """Id → text of these messages; large ones are read now.

    A message that was deleted meanwhile is left out.
    """
    found, large = {}, []
    for message in messages:
        if message.text is None:
            large.append(message)
        else:
            found[message.id] = message.text
    if large:
        payloads = dict(_rows("id, payload", [message.id for message in large]))
        found |= {
            m.id: orders.body(m.event_type, m.created_at, bytes(payloads[m.id]))
            for m in large
            if m.id in payloads
        }
    return found


class Texts:
    """Messages read in this turn, so that several subscriptions' deliveries read them once."""

    def __init__(self) -> None:
        self._kept: dict[int, Message] = {}
        self._bytes = 0

    def forget(self) -> None:
        self._kept.clear()
        self._bytes = 0

    def get(self, ids: Iterable[int]) -> dict[int, Message]:
        """Id → message; messages that do not exist are left out."""
        wanted = list(dict.fromkeys(ids))
        missing = [message_id for message_id in wanted if message_id not in self._kept]
        if missing and self._bytes > _KEPT_BYTES:
            self.forget()
            missing = wanted
        for message in map(_message, _rows(_SIZED, missing)):
            self._kept[message.id] = message
            self._bytes += message.size if message.text is not None else 0
        return {key: self._kept[key] for key in wanted if key in self._kept}


def numbers(ids: Iterable[int]) -> str:
    """For an IN list; whole numbers need no escaping."""
    return ",".join(map(str, map(int, ids)))


def _rows(columns: str, ids: Sequence[int]) -> Iterator[tuple[Any, ...]]:
    for chunk in chunks(ids, _CHUNK):
        statement = f"SELECT {columns} FROM biz_msg WHERE id IN ({numbers(chunk)}) ORDER BY id"  # noqa: S608
        yield from transactions.retrying(partial(select, statement))


def select(statement: str, parameters: Sequence[Any] | None = None) -> Sequence[tuple[Any, ...]]:
    """All rows of a statement, without the ORM: instances would cost more than the query."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def _message(row: tuple[Any, ...]) -> Message:
    message_id, biz_id, event_type, channel, key, stored, size, payload = row
    # ISO 8601 from how databases write a time; SQLite leaves out the zeros of a whole second.
    at = f"{stored[:10]}T{stored[11:]}{'' if len(stored) > 19 else '.000000'}Z"
    text = None if payload is None else orders.body(event_type, at, bytes(payload))
    key = key or ""
    size += orders.ITEM_BYTES + len(key)
    return Message(message_id, biz_id, event_type, channel, key, at, size, text)
