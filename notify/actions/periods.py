"""Actions on the messages of a period: replay every delivery of a subscription (Replay), replay
deliveries that never succeeded (ReplayFailed), and backfill, which makes the deliveries that
messages lack, such as deliveries for a newer subscription.

A replay reads the messages of the period page by page, hot and archived, in the order of their ids,
and sends the deliveries of each page. A backfill changes no existing delivery, whatever its status.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import msgspec
from django.db import transaction
from django.db.models import Case, Q, QuerySet, Value, When
from django.utils.translation import gettext as _
from msgspec.structs import replace

from msgplatform.core.data import ids as id_numbers, sql, transactions
from msgplatform.core.errors import InvalidInput, Temporary
from msgplatform.core.flows.actions import Applied
from msgplatform.core.flows.bulk_pages import Page
from msgplatform.core.flows.messages import Check, Source, Values
from msgplatform.messages.bulk import Selected
from msgplatform.messages.engine import select_ids
from notify.actions.resend import FAILED, is_ended, resend_deliveries
from notify.archive import stores
from notify.archive.stores import Store, reading
from notify.messages.filtered import lets_through, node_of
from notify.messages.index import messages_of
from notify.models import BizMsg, BizReceive, ReceiveMsg
from notify.subscriptions.filter_conditions import Node
from notify.subscriptions.matching import Filter, compile_filter

_Status = ReceiveMsg.Status


def message_values(values: Values, started_at: datetime) -> dict[str, Any]:
    """The filter of messages that came before the job began. With a subscription the filter has the
    subscription's system."""
    end = id_numbers.first_id_at(started_at)
    values = {**values, "until": min(values.get("until", end), end), "split": True}
    if "subscription" in values:
        rows = BizReceive.objects.filter(id=values["subscription"])
        biz = rows.values_list("biz_id", flat=True).first()
        if biz is None or values.get("biz", biz) != biz:
            raise InvalidInput(_("there is no such subscription"), "subscription")
        values["biz"] = biz
    return values


def split_messages(store: Store, values: Values, checks: Sequence[Check] = ()) -> Source:
    """The messages of a store that have been split, as a search finds them."""
    source = messages_of(store, values)
    # Every archived message has been split.
    is_distributed = Q() if store.cold else Q(state=BizMsg.State.DISTRIBUTED)
    conditions = {**source.conditions, "split": lambda _value: is_distributed}
    return replace(source, conditions=conditions, checks=checks)


class Replay:
    """All deliveries for a subscription since a time, successful deliveries too. Archived messages
    are brought back."""

    statuses: tuple[int, ...] = (_Status.DELIVERED, *FAILED.values())

    def __init__(self, values: Values, started_at: datetime) -> None:
        self._values, self._begun = message_values(values, started_at), started_at
        self._sources = [
            split_messages(
                store, self._values, [Check(("split",), partial(self._with_deliveries, store))]
            )
            for store in stores.both()
        ]

    def apply(self, ids: Sequence[int]) -> Applied:
        return Applied(resend_deliveries(ids, self.statuses, self._begun))

    def page(self, position: str, limit: int) -> Page:
        page = select_ids(self._sources, self._values, position, limit)
        pairs = self._pairs(page.ids, limit + 1)
        if len(pairs) <= limit:
            return Page([pk for pk, _ in pairs], page.position)
        # A page has whole messages, because the position is a message: the messages before the
        # first that does not fit. A first message that does not fit is a page alone.
        first_beyond = pairs[limit][1]
        if page_pairs := [pair for pair in pairs if pair[1] < first_beyond]:
            return Page([pk for pk, _ in page_pairs], str(page_pairs[-1][1]))
        return Page([pk for pk, _ in self._pairs([first_beyond])], str(first_beyond))

    def _pairs(self, message_ids: Sequence[int], limit: int | None = None) -> list[tuple[int, int]]:
        """Pairs (delivery, message) of the deliveries to send, in the order of the messages: the
        first `limit` at least, if there are so many, and not more than that from each store."""

        def read_hot_ids() -> set[int]:
            rows = BizMsg.objects.filter(id__in=message_ids)
            return set(rows.values_list("id", flat=True))

        # A message that was brought back is in both stores: its hot deliveries count. The ids are
        # read again after the deliveries: the archiver or a restore may have moved a message
        # meanwhile, whose deliveries would be read from neither store.
        while True:
            hot_ids = read_hot_ids()
            pairs = self._pairs_of(stores.hot(), sorted(hot_ids), limit)
            if read_hot_ids() == hot_ids:
                break
        with reading(stores.cold()):
            other_ids = [pk for pk in message_ids if pk not in hot_ids]
            pairs += self._pairs_of(stores.cold(), other_ids, limit)
        return sorted(pairs, key=lambda pair: (pair[1], pair[0]))

    def _with_deliveries(self, store: Store, _values: Values, ids: Sequence[int]) -> set[int]:
        return set(self._deliveries(store, ids).values_list("msg_id", flat=True).distinct())

    def _pairs_of(
        self, store: Store, message_ids: Sequence[int], limit: int | None
    ) -> list[tuple[int, int]]:
        rows = self._deliveries(store, message_ids).order_by("msg_id")
        return list(rows.values_list("id", "msg_id")[:limit])

    def _deliveries(self, store: Store, message_ids: Sequence[int]) -> QuerySet[Any]:
        """The deliveries to send; the database leaves the others out, because an event may have a
        thousand subscriptions."""
        rows: QuerySet[Any] = store.deliveries.filter(msg_id__in=message_ids).order_by()
        if "subscription" in self._values:
            rows = rows.filter(biz_receive_id=self._values["subscription"])
        # CASE hides the status: with the status in WHERE, MariaDB reads the index of statuses.
        is_resent = Case(When(self._condition(), then=Value(1)), default=Value(0))
        rows = rows.alias(is_resent=is_resent)
        return rows.filter(is_resent=1)

    def _condition(self) -> Q:
        return is_ended(self.statuses, self._begun)


class ReplayFailed(Replay):
    """Deliveries that never succeeded. A delivery that waits for its next attempt is sent now."""

    statuses = (*FAILED.values(), _Status.PENDING)

    def __init__(self, values: Values, started_at: datetime) -> None:
        if "biz" not in values and "subscription" not in values:
            raise InvalidInput(_("choose a subscription or a business system"), "subscription")
        super().__init__(values, started_at)

    def _condition(self) -> Q:
        # A pending delivery without an attempt has not failed: its first attempt is still to come.
        return super()._condition() & ~Q(status=_Status.PENDING, send_times=0)


# -- backfill --------------------------------------------------------------------------------------
# Deliveries made in one transaction. The other messages are in the next transaction.
MAX_DELIVERIES = 5000
_COLUMNS = (
    "id", "msg_id", "biz_id", "biz_receive_id", "status", "send_times", "next_at", "claimed_by",
    "generation", "http_status", "error", "created_at", "updated_at",
)  # fmt: skip


class _MoreMissing(Temporary):
    """The transaction found more missing deliveries than ids were reserved before it."""


class _Rule(NamedTuple):
    """A subscription of a business system, and the messages that it gets."""

    subscription: BizReceive
    payload_filter: Node | None
    filter: Filter


class Scope(msgspec.Struct, frozen=True):
    """`subscription`: id of the subscription that is filled up, None: all. `has_filtered`: also
    messages that the subscription's filter leaves out."""

    subscription: int | None = None
    has_filtered: bool = False


def add_missing(message_ids: Sequence[int], scope: Scope) -> int:
    """Make the deliveries that these messages lack; returns the number of deliveries.

    Locks the messages, so that no archiver and no other backfill works on them at the same time.
    """
    made_count = 0
    lacking = _count_missing(message_ids, scope)
    # Messages that lack nothing are left out: their filters would be tried under locks.
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
    return Counter(message.pk for message, _row in _missing(message_ids, scope, lock=False))


def _add(message_ids: list[int], scope: Scope, block: id_numbers.Block) -> int:
    with transaction.atomic(durable=True):
        # Look again under the messages' locks: a subscription may have been made meanwhile.
        missing = list(_missing(message_ids, scope, lock=True))
        if len(missing) > block.count:
            raise _MoreMissing("more deliveries are missing than ids were reserved")
        now = sql.now()
        delivery_ids = block.ids([id_numbers.bucket_of(message.pk) for message, _row in missing])
        rows = []
        for pk, (message, row) in zip(delivery_ids, missing, strict=True):
            is_held = row.status in BizReceive.HOLDING  # as in the maker's split
            status = _Status.HELD if is_held else _Status.PENDING
            rows.append((pk, message.pk, message.biz_id, row.pk, status, 0, now, "", 0, 0, "",
                         message.created_at, now))  # fmt: skip
        sql.insert_or_keep(ReceiveMsg._meta.db_table, _COLUMNS, rows)
    return len(missing)


def _missing(
    message_ids: Sequence[int], scope: Scope, lock: bool
) -> Iterator[tuple[BizMsg, BizReceive]]:
    """Yield each message with a subscription that lacks its delivery."""
    rows = BizMsg.objects.filter(id__in=message_ids, state=BizMsg.State.DISTRIBUTED).order_by("id")
    deliveries = ReceiveMsg.objects.filter(msg_id__in=message_ids).order_by()
    systems = set(rows.order_by().values_list("biz_id", flat=True))
    subscriptions = BizReceive.objects.filter(biz_id__in=systems).select_related("biz")
    subscriptions = subscriptions.exclude(status=BizReceive.Status.DISCARDED)
    if scope.subscription is not None:
        subscriptions = subscriptions.filter(id=scope.subscription)
    rules_by_system: dict[int, list[_Rule]] = defaultdict(list)
    has_payload_filter = False
    for row in subscriptions.order_by("id").only(
        "biz__name", "status", "event_types", "channels", "filter"
    ):
        node = None if scope.has_filtered else node_of(row)
        has_payload_filter = has_payload_filter or node is not None
        rule = _Rule(row, node, compile_filter(row.event_types, row.channels))
        rules_by_system[row.biz_id].append(rule)
    rows = rows if has_payload_filter else rows.defer("payload")
    messages = list(rows.select_for_update() if lock else rows)
    existing_pairs = set(deliveries.values_list("msg_id", "biz_receive_id"))
    for message in messages:
        lacking = [
            (rule.subscription, rule.payload_filter)
            for rule in rules_by_system.get(message.biz_id, ())
            if (message.pk, rule.subscription.pk) not in existing_pairs
            and rule.filter.matches(message.event_type, message.channel)
        ]
        for row in lets_through(message, lacking):
            yield message, row


def select_messages(values: Values, started_at: datetime) -> Selected:
    """Select the messages of a business system since a time; the action backfills them."""
    message_filter = message_values(values, started_at)
    scope = Scope(message_filter.pop("subscription", None), bool(message_filter.pop("filters", "")))
    source = split_messages(stores.hot(), message_filter)
    return Selected([source], message_filter, partial(add_missing, scope=scope))
