"""Backfill: make the deliveries that messages lack, such as deliveries for a newer subscription.

An existing delivery does not change, whatever its status.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial

import msgspec
from django.db import transaction

from msgplatform.core.data import ids as id_numbers
from msgplatform.core.data import sql, transactions
from msgplatform.core.errors import Temporary
from msgplatform.core.flows.messages import Values
from msgplatform.messages.bulk import Selected
from notify.actions.replay import message_values, split_messages
from notify.archive import stores
from notify.messages.filtered import lets_through, node_of
from notify.models import BizMsg, BizReceive, ReceiveMsg
from notify.subscriptions.filter_conditions import Node
from notify.subscriptions.matching import Filter as Wanted
from notify.subscriptions.matching import compile_filter

# Deliveries made in one transaction. The other messages are in the next transaction.
MAX_DELIVERIES = 5000
_COLUMNS = (
    "id", "msg_id", "biz_id", "biz_receive_id", "status", "send_times", "next_at", "claimed_by",
    "generation", "http_status", "error", "created_at", "updated_at",
)  # fmt: skip


class _Missing(msgspec.Struct, frozen=True):
    """A delivery that has to be made, with its first `status`."""

    message: int
    biz: int
    subscription: int
    status: int
    created_at: datetime


class _MoreMissing(Temporary):
    """The transaction found more missing deliveries than ids were reserved before it."""


class Scope(msgspec.Struct, frozen=True):
    """`subscription`: id of the subscription that is filled up, None: all. `has_filtered`: also
    messages that the subscription's filter leaves out."""

    subscription: int | None = None
    has_filtered: bool = False


EVERY = Scope()


def add_missing(message_ids: Sequence[int], scope: Scope = EVERY) -> int:
    """Make the deliveries that these messages lack; returns the number of deliveries.

    Locks the messages, so that no archiver and no other backfill works on them at the same time.
    """
    made_count = 0
    lacking = _count_missing(message_ids, scope)
    # The filters of others would be tried on their payloads once more, under locks.
    remaining_ids = [pk for pk in message_ids if lacking[pk]]
    while remaining_ids:
        # The first messages, at least one, that lack at most MAX_DELIVERIES deliveries.
        part, needed_count = remaining_ids[:1], lacking[remaining_ids[0]]
        for message_id in remaining_ids[1:]:
            if needed_count + lacking[message_id] > MAX_DELIVERIES:
                break
            part.append(message_id)
            needed_count += lacking[message_id]
        try:
            block = id_numbers.reserve(max(1, needed_count))
            made_count += transactions.retrying(partial(_add, part, scope, block))
        except _MoreMissing:
            # Count only after this error: a count tries every subscription's filter on each message
            lacking = _count_missing(remaining_ids, scope)
            continue
        remaining_ids = remaining_ids[len(part) :]
    return made_count


def _count_missing(message_ids: Sequence[int], scope: Scope) -> Counter[int]:
    """Message id → number of missing deliveries."""
    return Counter(row.message for row in _missing(message_ids, scope, lock=False))


def _add(message_ids: list[int], scope: Scope, block: id_numbers.Block) -> int:
    with transaction.atomic(durable=True):
        # Look again under the messages' locks: a subscription may have been made meanwhile.
        missing = list(_missing(message_ids, scope, lock=True))
        if len(missing) > block.count:
            raise _MoreMissing("more deliveries are missing than ids were reserved")
        now = sql.now()
        delivery_ids = block.ids([id_numbers.bucket_of(row.message) for row in missing])
        sql.insert_or_keep(
            ReceiveMsg._meta.db_table,
            _COLUMNS,
            [
                (pk, row.message, row.biz, row.subscription, row.status, 0, now, "",
                 0, 0, "", row.created_at, now)
                for pk, row in zip(delivery_ids, missing, strict=True)
            ],
        )  # fmt: skip
    return len(missing)


def _missing(message_ids: Sequence[int], scope: Scope, lock: bool) -> Iterator[_Missing]:
    rows = BizMsg.objects.filter(id__in=message_ids, state=BizMsg.State.DISTRIBUTED).order_by("id")
    deliveries = ReceiveMsg.objects.filter(msg_id__in=message_ids).order_by()
    systems = set(rows.order_by().values_list("biz_id", flat=True))
    subscriptions = BizReceive.objects.filter(biz_id__in=systems).select_related("biz")
    subscriptions = subscriptions.exclude(status=BizReceive.Status.DISCARDED)
    if scope.subscription is not None:
        subscriptions = subscriptions.filter(id=scope.subscription)
    rules_by_system: dict[int, list[tuple[BizReceive, Node | None, Wanted]]] = defaultdict(list)
    has_filter = False
    for row in subscriptions.order_by("id").only(
        "biz__name", "status", "event_types", "channels", "filter"
    ):
        node = None if scope.has_filtered else node_of(row)
        has_filter = has_filter or node is not None
        rule = compile_filter(row.event_types, row.channels)
        rules_by_system[row.biz_id].append((row, node, rule))
    rows = rows if has_filter else rows.defer("payload")
    messages = list(rows.select_for_update() if lock else rows)
    have = set(deliveries.values_list("msg_id", "biz_receive_id"))
    for message in messages:
        lacking = [
            (row, node)
            for row, node, rule in rules_by_system.get(message.biz_id, ())
            if (message.pk, row.pk) not in have
            and rule.matches(message.event_type, message.channel)
        ]
        for row in lets_through(message, lacking):
            is_held = row.status in BizReceive.HOLDING  # as in the maker's split
            status = ReceiveMsg.Status.HELD if is_held else ReceiveMsg.Status.PENDING
            yield _Missing(message.pk, message.biz_id, row.pk, status, message.created_at)


def select_messages(values: Values, started_at: datetime) -> Selected:
    """Select the messages of a business system since a time; the action backfills them."""
    message_filter = message_values(values, started_at)
    scope = Scope(message_filter.pop("subscription", None), bool(message_filter.pop("filters", "")))
    source = split_messages(stores.hot(), message_filter)
    return Selected([source], message_filter, partial(add_missing, scope=scope))
