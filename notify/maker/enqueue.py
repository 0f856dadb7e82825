"""Read and lock the messages of orders, make the text that is sent, which is one for all
subscriptions, and put claimed deliveries on the queues as work orders, several in one round trip to
Redis."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from django.conf import settings
from django.db import connection
from django.db.models.functions import Now

from msgplatform.core.connections import RedisError, refusal
from msgplatform.core.data import chunks, claims, engines, transactions
from msgplatform.core.failpoints import failpoint
from msgplatform.core.queues import jobs
from msgplatform.core.tracing.context import is_on
from notify import orders, presence, signals
from notify.directory import Subscription
from notify.maker import ending
from notify.models import BizMsg, ReceiveMsg

_CHUNK = 500
# Larger payloads are read when their order is made, so that a page of messages is a few megabytes.
INLINE_BYTES = 8 * 1024
# Bytes of texts that `Texts` keeps for a turn.
_CACHE_BYTES = 16 * 1024 * 1024
# Bounds of one round trip. The last item of an order may exceed the bytes.
STEP_BYTES = 4 * 1024 * 1024
STEP_ORDERS = 100

# The time is read as text, and integers are written into the statement: converting and escaping
# each value would cost more than the statement.
# The statement for a page of messages looks up each idempotency key by its primary key.
_KEY = "(SELECT `key` FROM idempotency WHERE idempotency.id = biz_msg.id)"
_TRACE = "(SELECT traceparent FROM message_trace WHERE message_trace.id = biz_msg.id)"
_COLUMNS = f"id, biz_id, event_type, channel, {_KEY}, CAST(created_at AS CHAR)"
_SIZED = (
    f"{_COLUMNS}, LENGTH(payload), CASE WHEN LENGTH(payload) <= {INLINE_BYTES} THEN payload END"
)
_UNSIZED = f"{_COLUMNS}, 0, NULL"


class Message(msgspec.Struct):
    """The part of a message that an order needs; `text` is None until a large payload is read.

    `key` is the idempotency key of the request, '' without a key or after the key was deleted.
    `size` is about the bytes that the message takes in an order. `is_readable` is False for a
    payload that is not UTF-8, which has no text; intake does not accept such a payload. `trace` is
    the `traceparent` of a message that is traced, while traces are on.
    """

    id: int
    biz_id: int
    event_type: str
    channel: str
    key: str
    created_at: str
    size: int
    text: str | None
    is_readable: bool = True
    trace: str = ""


def waiting_systems(limit: int) -> list[int]:
    """Ids of systems with messages that wait to be split, the longest waiting first. Costs one
    index dive for each system, however many messages wait."""
    # ORDER BY names all columns of the index: with `ORDER BY id` MySQL would sort the backlog.
    # Without the hint MySQL would read all messages of a system.
    firsts = select(
        f"SELECT b.id, (SELECT m.id FROM biz_msg m {_index()} WHERE m.biz_id = b.id "  # noqa: S608
        f"AND m.state = {int(BizMsg.State.ACCEPTED)} ORDER BY m.biz_id, m.state, m.id LIMIT 1) "
        "FROM biz b"
    )
    waiting = sorted((message_id, biz_id) for biz_id, message_id in firsts if message_id)
    return [biz_id for _first, biz_id in waiting[:limit]]


def count_accepted(limits: Mapping[int, int]) -> dict[int, int]:
    """The number of waiting messages of each system, counted up to its limit."""
    parts = (
        f"SELECT {int(biz_id)}, COUNT(*) FROM (SELECT 1 FROM biz_msg {_index()} "  # noqa: S608
        f"WHERE {_accepted(biz_id)} LIMIT {int(limit)}) AS of_{int(biz_id)}"
        for biz_id, limit in limits.items()
    )
    rows = select(" UNION ALL ".join(parts))
    return {int(biz_id): int(count) for biz_id, count in rows if count}


def lock_accepted(limits: Mapping[int, int], payloads: bool = True) -> list[Message]:
    """Lock the first messages of each system that wait to be split, by id. Messages that another
    maker has locked are skipped where the database can do that. `limits`: system → number of
    messages. Without `payloads` the messages have no size and no text."""
    engine = engines.of()
    columns = _with_trace(_SIZED if payloads else _UNSIZED)
    parts = [
        f"SELECT {columns} FROM biz_msg {_index()} WHERE {_accepted(biz_id)} "  # noqa: S608
        f"ORDER BY biz_id, state, id LIMIT {int(limits[biz_id])} {engine.skip_locked}"
        for biz_id in sorted(limits)  # all makers lock in this order, so they cannot deadlock
    ]
    if len(parts) > 1:
        parts = [engine.branch(part) for part in parts]
    messages = map(_message, select(" UNION ALL ".join(parts)))
    return sorted(messages, key=lambda message: message.id)


def _index() -> str:
    """The index hint. Without the hint MariaDB may read all messages by their ids."""
    return engines.of().force_index("biz_msg_to_split_of_biz")


def _accepted(biz_id: int) -> str:
    return f"biz_id = {int(biz_id)} AND state = {int(BizMsg.State.ACCEPTED)}"


def read_texts(messages: Iterable[Message]) -> dict[int, str]:
    """Id → text of these messages. Large payloads are read now.

    A message that was deleted meanwhile, or that is not readable, is left out.
    """
    texts_by_id, large_messages = {}, []
    for message in messages:
        if message.text is not None:
            texts_by_id[message.id] = message.text
        elif message.is_readable:
            large_messages.append(message)
    if large_messages:
        payloads = dict(_rows("id, payload", [message.id for message in large_messages]))
        for message in large_messages:
            if message.id in payloads:
                _read(message, bytes(payloads[message.id]))
                if message.text is not None:
                    texts_by_id[message.id], message.text = message.text, None
    return texts_by_id


class Texts:
    """A cache of the messages of this turn. The deliveries of several subscriptions share it."""

    def __init__(self) -> None:
        self._cache: dict[int, Message] = {}
        self._bytes = 0

    def forget(self) -> None:
        self._cache.clear()
        self._bytes = 0

    def get(self, ids: Iterable[int]) -> dict[int, Message]:
        """Id → message; messages that do not exist are left out."""
        message_ids = list(dict.fromkeys(ids))
        missing = [message_id for message_id in message_ids if message_id not in self._cache]
        if missing and self._bytes > _CACHE_BYTES:
            self.forget()
            missing = message_ids
        for message in map(_message, _rows(_with_trace(_SIZED), missing)):
            self._cache[message.id] = message
            self._bytes += message.size if message.text is not None else 0
        return {key: self._cache[key] for key in message_ids if key in self._cache}


def numbers(ids: Iterable[int]) -> str:
    """The ids as the text of an IN list. Integers need no escaping."""
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


def _with_trace(columns: str) -> str:
    return f"{columns}, {_TRACE}" if is_on() else columns


def _message(row: tuple[Any, ...]) -> Message:
    message_id, biz_id, event_type, channel, key, created_at, size, payload, *traces = row
    # ISO 8601 from the database's text. SQLite leaves out the zeros of a whole second.
    at = f"{created_at[:10]}T{created_at[11:]}{'' if len(created_at) > 19 else '.000000'}Z"
    key = key or ""
    size += orders.ITEM_BYTES + len(key)
    message = Message(message_id, biz_id, event_type, channel, key, at, size, None)
    if traces:
        message.trace = traces[0] or ""
    if payload is not None:
        _read(message, bytes(payload))
    return message


def _read(message: Message, payload: bytes) -> None:
    try:
        message.text = orders.body(message.event_type, message.created_at, payload)
    except UnicodeDecodeError:
        message.is_readable = False


class ClaimedDeliveries(msgspec.Struct):
    """An order before it is queued. Its items are (delivery id, attempt, message, `Item.due`)."""

    subscription: Subscription
    claim: str
    lease_until: float
    items: list[tuple[int, int, Message, float]]
    is_probe: bool = False  # see Order.is_probe


def put(orders_to_put: Iterable[ClaimedDeliveries]) -> None:
    """Put claimed orders on their queues, several in a round trip."""
    remaining = [order for order in orders_to_put if order.items]
    if remaining:
        # A maker that dies from here on leaves claimed deliveries: due again after their lease.
        failpoint("maker_after_commit_before_enqueue")
    sizes = [sum(message.size for _, _, message, _ in order.items) for order in remaining]
    while remaining:
        count = orders.fitting(sizes, STEP_ORDERS, STEP_BYTES)
        group, remaining, sizes = remaining[:count], remaining[count:], sizes[count:]
        messages = {m.id: m for entry in group for _, _, m, _ in entry.items}
        text = read_texts(messages.values())
        queue_orders = []
        for entry in group:
            unreadable_ids = [pk for pk, _, message, _ in entry.items if not message.is_readable]
            subscription = entry.subscription
            ending.set_aside(subscription.id, unreadable_ids, ending.UNREADABLE, entry.claim)
            items = [
                orders.Item(pk, m.id, attempt, text[m.id], m.event_type, m.key, due, m.trace)
                for pk, attempt, m, due in entry.items
                if m.id in text  # else the message was deleted: due again after the lease
            ]
            order = orders.Order(
                subscription.id, entry.claim, entry.lease_until, items, entry.is_probe
            )
            if items:
                queue_orders.append((subscription.queue, order))
        try:
            # An order lives longer than its lease, so that a late order is given back, not lost.
            jobs.put_all(queue_orders, ttl=2 * settings.NOTIFY_LEASE_SECONDS)
        except RedisError as error:
            if refusal(error):
                _release([*group, *remaining])
            raise
        signals.SENDER.send()
        presence.withdraw_probes(p.subscription.id for p in group if p.is_probe)


def _release(refused_orders: Iterable[ClaimedDeliveries]) -> None:
    """Make deliveries due again whose orders Redis has refused. Otherwise they would wait for
    their lease, minutes after Redis accepts writes again."""
    values = {"status": ReceiveMsg.Status.PENDING, "claimed_by": "", "next_at": Now()}
    for order in refused_orders:
        for ids in chunks([pk for pk, *_ in order.items], claims.CHUNK):
            rows = ReceiveMsg.objects.filter(
                id__in=ids, status=ReceiveMsg.Status.QUEUED, claimed_by=order.claim
            )
            transactions.retrying(partial(claims.update_by_key, rows, values))
