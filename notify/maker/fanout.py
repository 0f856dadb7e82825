"""The deliveries of a slice of messages: their recipients, and the INSERT … SELECT."""

import json
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain, product
from typing import Any

import msgspec
from django.db import connection
from django.db.models import TextField
from django.db.models.functions import Cast

from msgplatform.core.data import chunks, engines, ids, sql
from msgplatform.core.errors import Undecryptable
from notify import orders
from notify.maker.enqueue import Message, numbers, read_texts, select
from notify.models import BizMsg, BizReceive, ReceiveMsg
from notify.subscriptions import formats, payload_filter
from notify.subscriptions.filter_conditions import Node, event_of, matches
from notify.subscriptions.matching import Filter, compile_filter

_Status = ReceiveMsg.Status

_INSERT = """
INSERT INTO receive_msg
  (id, msg_id, biz_id, biz_receive_id, status, send_times, next_at, claimed_by, generation,
   http_status, error, created_at, updated_at)
{pairs} SELECT {id},
  m.id, m.biz_id, s.id,
  CASE WHEN s.status IN ({holding}) THEN {held} WHEN {direct} THEN {queued} ELSE {pending} END, 0,
  CASE WHEN s.status NOT IN ({holding}) AND {direct} THEN {leased} ELSE {now} END,
  CASE WHEN s.status NOT IN ({holding}) AND {direct} THEN %s ELSE '' END,
  0, 0, '', m.created_at, {now}
FROM {rows}
"""
# Bounds of the cache: systems, and recipients of (event type, channel) for each system.
_MAX_SYSTEMS, _MAX_ANSWERS = 1_000, 10_000
# Up to this number of sets of recipients the statement names the sets. More sets are written as
# pairs, because the database would compare each set with every message and every subscription.
_MAX_SETS = 4
# Trials of payload filters in one transaction, about a tenth of a second. Further messages wait for
# the next turn.
MAX_TRIALS = 20_000
# Large payloads and filters take longer. The systems have equal parts of this time; one that has
# used its part, and at least one message, waits for the next turn, and the others go on.
TRIAL_SECONDS = 0.3
# Messages whose payloads are in memory at a time, and bytes of payloads that a transaction reads
# for filters, about. Further messages wait for the next turn.
_TEXTS, _TEXT_BYTES = 64, 16 * 1024 * 1024


@lru_cache(maxsize=16_384)
def _filter(event_types: str, channels: str) -> Filter:
    return compile_filter(json.loads(event_types), json.loads(channels))


class Slice(msgspec.Struct):
    """Messages in the order of their ids. `recipients`: the subscriptions of each message.

    Deliveries for the subscriptions in `direct` are inserted as claimed, to be queued at once.
    """

    messages: list[Message] = msgspec.field(default_factory=list)
    recipients: list[tuple[int, ...]] = msgspec.field(default_factory=list)
    deliveries: int = 0
    direct: set[int] = msgspec.field(default_factory=set)

    def add(self, message: Message, subscriptions: tuple[int, ...]) -> None:
        self.messages.append(message)
        self.recipients.append(subscriptions)
        self.deliveries += len(subscriptions)

    @property
    def subscription_ids(self) -> set[int]:
        return {pk for subscriptions in set(self.recipients) for pk in subscriptions}

    def by_subscription(self) -> dict[int, list[Message]]:
        by_subscription: dict[int, list[Message]] = defaultdict(list)
        for message, subscriptions in zip(self.messages, self.recipients, strict=True):
            for subscription_id in subscriptions:
                by_subscription[subscription_id].append(message)
        return by_subscription


class _SystemRules:
    def __init__(self) -> None:
        # The checksum of the rows read, None without rows. `object()` equals no checksum.
        self.checksum: object = object()
        # (event type, channel) → subscriptions. "" stands for patterns, and for every channel. Most
        # filters are names, so a system with thousands of filters tries few for a message.
        self._rules: dict[tuple[str, str], list[tuple[int, Filter]]] = defaultdict(list)
        # Subscription → payload filter. `source` is the CloudEvents source of the system.
        self.payload_filters: dict[int, Node] = {}
        self.source = ""
        self._answers: dict[tuple[str, str], tuple[int, ...]] = {}
        # Equal tuples are shared: a system with a channel for each customer has thousands.
        self._sets: dict[tuple[int, ...], tuple[int, ...]] = {}

    def add(self, subscription_id: int, rule: Filter) -> None:
        event_types = {""} if rule.patterns or not rule.names else rule.names
        for place in product(event_types, rule.channels or {""}):
            self._rules[place].append((subscription_id, rule))

    def by(self, event_type: str, channel: str) -> tuple[int, ...]:
        """The ids of the subscriptions that such a message is for, ascending."""
        kind = (event_type, channel)
        if kind not in self._answers:
            places = {kind, (event_type, ""), ("", channel), ("", "")}
            rules = chain.from_iterable(self._rules.get(place, ()) for place in places)
            ids = tuple(sorted({pk for pk, rule in rules if rule.matches(event_type, channel)}))
            if len(self._answers) >= _MAX_ANSWERS:
                self._answers.clear()
                self._sets.clear()
            self._answers[kind] = self._sets.setdefault(ids, ids)
        return self._answers[kind]


class Recipients:
    """The subscriptions whose filters match a message, as read by the last `refresh`.

    The splitter calls `refresh` after it has locked the messages. So this object knows every
    subscription that existed when a locked message was accepted.
    """

    def __init__(self) -> None:
        self._systems: dict[int, _SystemRules] = {}
        # Message with a filtered payload → its subscriptions, and its excluded subscriptions.
        self._by_message: dict[int, tuple[int, ...]] = {}
        self.excluded: dict[int, set[int]] = {}

    def refresh(self, biz_ids: Collection[int]) -> None:
        """Read the filters of the systems whose filters have changed."""
        checksums = _read_checksums(biz_ids)
        stale_ids = [
            biz_id
            for biz_id in biz_ids
            if checksums is None
            or biz_id not in self._systems
            or self._systems[biz_id].checksum != checksums.get(biz_id)
        ]
        if not stale_ids:
            return
        new = {biz_id: _SystemRules() for biz_id in stale_ids}
        texts = (Cast(name, TextField()) for name in ("event_types", "channels", "filter"))
        rows = BizReceive.objects.filter(biz_id__in=stale_ids).order_by()
        rows = rows.exclude(status=BizReceive.Status.DISCARDED)
        for pk, biz_id, event_types, channels, content, name in rows.values_list(
            "id", "biz_id", *texts, "biz__name"
        ):
            new[biz_id].add(pk, _filter(event_types, channels))
            new[biz_id].source = formats.source(name)
            # An invalid filter excludes nothing here: `directory` holds the deliveries and alerts.
            with suppress(ValueError):
                if node := payload_filter.of_text(content or "null"):
                    new[biz_id].payload_filters[pk] = node
        # A filter that changed between the two statements is read again by the next refresh.
        if checksums is not None:
            later_checksums = _read_checksums(stale_ids) or {}
            for biz_id, rules in new.items():
                if later_checksums.get(biz_id) == checksums.get(biz_id):
                    rules.checksum = checksums.get(biz_id)
        if len(self._systems) > _MAX_SYSTEMS:
            self._systems = {pk: self._systems[pk] for pk in biz_ids if pk in self._systems}
        # Replace only when all rows are read: with fewer filters recipients would be missing.
        self._systems |= new

    def by(self, message: Message) -> tuple[int, ...]:
        subscriptions = self._by_message.get(message.id)
        if subscriptions is not None:
            return subscriptions
        return self._systems[message.biz_id].by(message.event_type, message.channel)

    def apply_filters(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Apply payload filters: read each payload once if a recipient has a filter. Returns the
        messages of about MAX_TRIALS trials, chosen in turns of systems."""
        self._by_message, self.excluded = {}, {}
        if not any(self._systems[m.biz_id].payload_filters for m in messages):
            return messages
        trials, chosen, to_read = 0, list[Message](), list[Message]()
        for message in orders.in_turns(messages, lambda m: m.biz_id, lambda m: len(self.by(m))):
            filters = self._systems[message.biz_id].payload_filters
            count = sum(pk in filters for pk in self.by(message)) if filters else 0
            if chosen and trials + count > MAX_TRIALS:
                break
            trials += count
            chosen.append(message)
            if count:
                to_read.append(message)
        seconds_of_each = TRIAL_SECONDS / len({m.biz_id for m in to_read}) if to_read else 0.0
        seconds: dict[int, float] = defaultdict(float)
        tried_messages, to_try = list[Message](), {message.id for message in to_read}
        size = 0
        for part in chunks(chosen, _TEXTS):
            if size >= _TEXT_BYTES:
                break
            texts = read_texts(
                m for m in part if m.id in to_try and seconds[m.biz_id] <= seconds_of_each
            )
            size += sum(map(len, texts.values()))
            for message in part:
                # Its messages keep their order, whichever have a filter.
                if seconds[message.biz_id] > seconds_of_each:
                    continue
                tried_messages.append(message)
                if message.id in to_try:
                    began = time.monotonic()
                    self._try(message, texts.get(message.id))
                    seconds[message.biz_id] += time.monotonic() - began
        return sorted(tried_messages, key=lambda message: message.id)

    def _try(self, message: Message, text: str | None) -> None:
        """Try the filters of the message's recipients on its payload."""
        rules, subscriptions = self._systems[message.biz_id], self.by(message)
        # An unreadable payload has its deliveries: they are sent when the key is back, or the
        # dispatcher sets them aside.
        if text is None:
            return
        try:
            body = orders.open_body(text)
        except (Undecryptable, UnicodeDecodeError):
            return
        event = event_of(body, message.id, message.channel, rules.source)
        excluded = {
            pk
            for pk in subscriptions
            if (node := rules.payload_filters.get(pk)) and not matches(node, event)
        }
        if excluded:
            remaining = tuple(pk for pk in subscriptions if pk not in excluded)
            self._by_message[message.id], self.excluded[message.id] = remaining, excluded


def _read_checksums(biz_ids: Collection[int]) -> dict[int, object] | None:
    """System → (number of subscriptions, sum of the checksums of their filters)."""
    checksum = engines.of().sum_of_checksums(["id", "event_types", "channels", "filter"])
    if checksum is None:
        return None
    rows = select(
        f"SELECT biz_id, COUNT(*), {checksum} FROM biz_receive "  # noqa: S608
        f"WHERE biz_id IN ({numbers(biz_ids)}) AND status <> {int(BizReceive.Status.DISCARDED)} "
        "GROUP BY biz_id"
    )
    return {biz_id: tuple(checksum) for biz_id, *checksum in rows}


def cut(
    messages: Iterable[Message], recipients: Recipients, max_messages: int, max_deliveries: int
) -> list[Slice]:
    """Cut the messages into slices of at most `max_deliveries`. A message is never cut."""
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
    """SQL for the ids of deliveries, as `ids.Block.ids` makes ids: by message, then by
    subscription. Parameters: the block's base and node."""
    bits, cell = ids.cell_bits()
    return (
        f"((%s + ROW_NUMBER() OVER (ORDER BY m.id, s.id) - 1) << {ids.TICK_SHIFT})"
        f" | (%s << {ids.NODE_SHIFT}) | (m.id & {bits}) | {cell}"
    )


def insert(part: Slice, base: int, node: int, token: str, lease: float) -> None:
    """Insert the slice's deliveries with ids from `base` on. Existing deliveries stay.

    One statement inserts all, so that each subscription gets its messages in order.
    """
    if not part.deliveries:
        return
    # Recipients → ids of the messages with these recipients.
    sets: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for message, subscriptions in zip(part.messages, part.recipients, strict=True):
        if subscriptions:
            sets[subscriptions].append(message.id)
    # Without the hint MariaDB reads all messages of the system for each subscription.
    table, join = f"biz_msg m {engines.of().force_index('PRIMARY')}", engines.of().ordered_join
    if len(sets) <= _MAX_SETS:
        all_ids = [message_id for message_ids in sets.values() for message_id in message_ids]
        condition = " OR ".join(
            f"(m.id IN ({numbers(message_ids)}) AND s.id IN ({numbers(subscriptions)}))"
            for subscriptions, message_ids in sets.items()
        )
        if len(sets) == 1:
            condition = f"s.id IN ({numbers(next(iter(sets)))})"
        pairs = ""
        rows = (
            f"{table} {join} biz_receive s ON s.biz_id = m.biz_id "
            f"WHERE m.id IN ({numbers(all_ids)}) AND ({condition})"
        )
    else:
        pairs = sql.table_of("p", ("message", "subscription"), chain.from_iterable(
            product(message_ids, subscriptions) for subscriptions, message_ids in sets.items()
        ))  # fmt: skip
        rows = (
            f"p {join} {table} ON m.id = p.message "
            f"{join} biz_receive s ON s.id = p.subscription WHERE s.biz_id = m.biz_id"
        )
    statement = _INSERT.format(
        id=id_sql(),
        held=int(_Status.HELD), queued=int(_Status.QUEUED), pending=int(_Status.PENDING),
        holding=numbers(BizReceive.HOLDING),
        direct=f"s.id IN ({numbers(part.direct)})" if part.direct else "0 = 1",
        now=sql.now_sql(),  # the database's clock: a web host's may be wrong
        leased=sql.now_sql(lease),
        pairs=pairs, rows=rows,
    )  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(sql.keep_existing(statement, "receive_msg"), [base, node, token])


def mark_split(part: Slice) -> None:
    """Set the state of the messages to split. Call it after `insert`, in the same transaction."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE biz_msg SET state = {int(BizMsg.State.DISTRIBUTED)} "  # noqa: S608
            f"WHERE id IN ({numbers(message.id for message in part.messages)})"
        )


def read_inserted(base: int, count: int, token: str) -> Sequence[tuple[Any, ...]]:
    """Read back (id, message id, subscription) of the deliveries that carry the token."""
    return select(
        "SELECT id, msg_id, biz_receive_id FROM receive_msg "
        "WHERE id >= %s AND id < %s AND claimed_by = %s ORDER BY id",
        [base << ids.TICK_SHIFT, (base + count) << ids.TICK_SHIFT, token],
    )
