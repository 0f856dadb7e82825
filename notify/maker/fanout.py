"""The deliveries of a slice of messages: their recipients, and the INSERT … SELECT."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from django.db import connection

from msgplatform.core.data import ids, sql
from notify.maker.payloads import Message, numbers, select
from notify.models import BizMsg, BizReceive, ReceiveMsg
from notify.subscriptions.matching import Filter, compile_filter

_Status = ReceiveMsg.Status
# Deliveries for a subscription that is paused or disabled are made too, and held.
_HOLDING = f"{int(BizReceive.Status.PAUSED)}, {int(BizReceive.Status.DISABLED)}"

_INSERT = """
INSERT INTO receive_msg
  (id, msg_id, biz_id, biz_receive_id, status, send_times, next_at, claimed_by, generation,
   http_status, error, created_at, updated_at)
SELECT {id},
  m.id, m.biz_id, s.id,
  CASE WHEN s.status IN ({holding}) THEN {held} WHEN {direct} THEN {queued} ELSE {pending} END, 0,
  CASE WHEN s.status NOT IN ({holding}) AND {direct} THEN {leased} ELSE {now} END,
  CASE WHEN s.status NOT IN ({holding}) AND {direct} THEN %s ELSE '' END,
  0, 0, '', m.created_at, {now}
FROM {joined} biz_receive s ON s.biz_id = m.biz_id
WHERE m.id IN ({messages}) AND ({condition})
"""


_filter = lru_cache(maxsize=4096)(compile_filter)
# Messages first, by their keys: left to itself MariaDB goes through all messages of the system for
# each subscription.
_JOINED = {
    "mysql": "biz_msg m FORCE INDEX (PRIMARY) STRAIGHT_JOIN",
    "sqlite": "biz_msg m CROSS JOIN",
}


@dataclass(slots=True)
class Slice:
    """Messages in the order of their ids; `recipients` are the subscriptions of each.

    Deliveries for the subscriptions in `direct` are inserted as claimed, to be queued at once.
    """

    messages: list[Message] = field(default_factory=list)
    recipients: list[tuple[int, ...]] = field(default_factory=list)
    deliveries: int = 0
    direct: set[int] = field(default_factory=set)

    def add(self, message: Message, subscriptions: tuple[int, ...]) -> None:
        self.messages.append(message)
        self.recipients.append(subscriptions)
        self.deliveries += len(subscriptions)

    def by_subscription(self) -> dict[int, list[Message]]:
        by_subscription: dict[int, list[Message]] = defaultdict(list)
        for message, subscriptions in zip(self.messages, self.recipients, strict=True):
            for subscription_id in subscriptions:
                by_subscription[subscription_id].append(message)
        return by_subscription


class Recipients:
    """The subscriptions whose filters match a message, as they are when the object is made.

    The splitter makes it after it has locked the messages, so it holds every subscription that
    existed when one of them was accepted.
    """

    def __init__(self, biz_ids: Collection[int]) -> None:
        rows = BizReceive.objects.filter(biz_id__in=biz_ids).exclude(
            status=BizReceive.Status.DISCARDED
        )
        self._filters: dict[int, list[tuple[int, Filter]]] = defaultdict(list)
        for pk, biz_id, event_types, channels in rows.order_by("id").values_list(
            "id", "biz_id", "event_types", "channels"
        ):
            self._filters[biz_id].append((pk, _filter(tuple(event_types), tuple(channels))))
        self._cache: dict[tuple[int, str, str], tuple[int, ...]] = {}

    def by(self, message: Message) -> tuple[int, ...]:
        kind = (message.biz_id, message.event_type, message.channel)
        if kind not in self._cache:
            self._cache[kind] = tuple(
                pk
                for pk, rule in self._filters.get(message.biz_id, ())
                if rule.matches(message.event_type, message.channel)
            )
        return self._cache[kind]


def cut(
    messages: Iterable[Message], recipients: Recipients, max_messages: int, max_deliveries: int
) -> list[Slice]:
    """Cut the messages into slices of at most `max_deliveries`; one message is never cut."""
    parts: list[Slice] = [Slice()]
    for message in messages:
        subscriptions = recipients.by(message)
        last = parts[-1]
        is_over = last.deliveries + len(subscriptions) > max_deliveries
        if last.messages and (is_over or len(last.messages) >= max_messages):
            parts.append(Slice())
        parts[-1].add(message, subscriptions)
    return [part for part in parts if part.messages]


def id_sql() -> str:
    """The id of each delivery, as `ids.Block.ids` would make it: by message, then by subscription.
    Its parameters are the block's base and node."""
    bits, cell = ids.cell_bits()
    return (
        f"((%s + ROW_NUMBER() OVER (ORDER BY m.id, s.id) - 1) << {ids.TICK_SHIFT})"
        f" | (%s << {ids.NODE_SHIFT}) | (m.id & {bits}) | {cell}"
    )


def insert(part: Slice, base: int, node: int, token: str, lease: float) -> None:
    """Insert the slice's deliveries with ids from `base` on; a delivery that exists already stays.

    One statement for all of them, so that each subscription gets its messages in their order.
    """
    if not part.deliveries:
        return
    groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for message, subscriptions in zip(part.messages, part.recipients, strict=True):
        if subscriptions:
            groups[subscriptions].append(message.id)
    message_ids = [message_id for group in groups.values() for message_id in group]
    # Messages with the same recipients share a condition; mostly there is only one.
    condition = " OR ".join(
        f"(m.id IN ({numbers(messages)}) AND s.id IN ({numbers(subscriptions)}))"
        for subscriptions, messages in groups.items()
    )
    if len(groups) == 1:
        condition = f"s.id IN ({numbers(next(iter(groups)))})"
    statement = _INSERT.format(
        id=id_sql(),
        held=int(_Status.HELD), queued=int(_Status.QUEUED), pending=int(_Status.PENDING),
        holding=_HOLDING, direct=f"s.id IN ({numbers(part.direct)})" if part.direct else "0 = 1",
        now=sql.now_sql(),  # the database's clock: a web host's may be wrong
        leased=sql.now_sql(lease),
        joined=_JOINED[connection.vendor], messages=numbers(message_ids), condition=condition,
    )  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(sql.keep_existing(statement, "receive_msg"), [base, node, token])


def mark_split(part: Slice) -> None:
    """Set the state of the messages, after `insert` and in its transaction."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE biz_msg SET state = {int(BizMsg.State.SPLIT)} "  # noqa: S608
            f"WHERE id IN ({numbers(message.id for message in part.messages)})"
        )


def read_inserted(base: int, count: int, token: str) -> Sequence[tuple[Any, ...]]:
    """Read back (id, message id, subscription) of the deliveries that carry the token."""
    return select(
        "SELECT id, msg_id, biz_receive_id FROM receive_msg "
        "WHERE id >= %s AND id < %s AND claimed_by = %s ORDER BY id",
        [base << ids.TICK_SHIFT, (base + count) << ids.TICK_SHIFT, token],
    )
