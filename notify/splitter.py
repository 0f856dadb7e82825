"""Split: a copy of each message for every subscription that wants it, set by set.

One transaction claims the messages, reads the subscriptions and inserts the copies, so a killed
process leaves nothing half done. A unique (message, subscription) makes it repeatable.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial

from django.db import connection, transaction
from django.db.models import QuerySet

from msgplatform.core import claims, ids, sql
from msgplatform.core.errors import Temporary
from msgplatform.core.failpoints import failpoint
from notify.matching import Filter, compile_filter
from notify.models import BizMsg, BizReceive, ReceiveMsg

BATCH = 500
# Copies in one transaction: a thousand subscriptions make half a million of a full batch.
MAX_COPIES = 20_000
# The claim and the split are one transaction: the lease only has to outlast it.
_LEASE_SECONDS = 60
_Status = ReceiveMsg.Status

_INSERT = """
INSERT INTO receive_msg
  (id, msg_id, biz_id, biz_receive_id, status, send_times, next_at, claimed_by, generation,
   http_status, error, created_at, updated_at)
SELECT ((%s + ROW_NUMBER() OVER (ORDER BY m.id, s.id) - 1) << 15) | (%s << 8) | (m.id & 255),
  m.id, m.biz_id, s.id, CASE WHEN s.status IN (%s, %s) THEN %s ELSE %s END, 0,
  {now}, '', 0, 0, '', m.created_at, {now}
FROM biz_msg m JOIN biz_receive s ON s.biz_id = m.biz_id
WHERE m.id IN ({messages}) AND s.id IN ({subscriptions})
"""
# Copies for a subscription that is paused or disabled are made and held.
_PAUSED = (int(BizReceive.Status.PAUSED), int(BizReceive.Status.DISABLED))
_STATES = [*_PAUSED, int(_Status.HELD), int(_Status.PENDING)]

_Group = tuple[tuple[int, ...], list[int]]  # (subscriptions, messages that all of them want)


class _NotEnoughIds(Temporary):
    """Ids are reserved outside of transactions, before it is known how many are needed."""

    def __init__(self, copies: int) -> None:
        super().__init__(f"{copies} copies need more ids than were reserved")
        self.copies = copies


class Splitter:
    """Remembers how many copies a message makes, to reserve about as many ids as are needed.

    Reserved ids are ticks: many more than needed would run ahead of the clock.
    """

    def __init__(self) -> None:
        self._per_message = 1

    def split(self) -> int:
        """Split up to BATCH accepted messages; how many they were."""
        limit = max(1, min(BATCH, MAX_COPIES // self._per_message))
        waiting = _waiting()[:limit].count()
        if not waiting:
            return 0  # an idle turn writes nothing, and reserves no ids
        needed = waiting * self._per_message
        while True:
            block = ids.reserve(needed)
            try:
                messages, copies = sql.retrying(partial(_split_once, block, waiting))
            except _NotEnoughIds as error:
                needed = error.copies
                if needed > MAX_COPIES and waiting > 1:
                    waiting = max(1, waiting * MAX_COPIES // needed)
                    needed = MAX_COPIES
                continue
            self._per_message = max(1, -(-copies // max(1, messages)))
            return messages


def _waiting() -> QuerySet[BizMsg]:
    return BizMsg.objects.filter(state=BizMsg.State.ACCEPTED).order_by("id")


def _split_once(block: ids.Block, limit: int) -> tuple[int, int]:
    with transaction.atomic(durable=True):
        claim = claims.claim(
            _waiting(), limit=limit, lease=_LEASE_SECONDS, set={"state": BizMsg.State.SPLIT}
        )
        groups = _groups(claim.ids)
        copies = sum(len(subscriptions) * len(messages) for subscriptions, messages in groups)
        if copies > block.count:
            raise _NotEnoughIds(copies)  # rolls back
        _insert(groups, block)
        failpoint("maker_split_before_commit")
    failpoint("maker_split_after_commit")
    return len(claim.ids), copies


def _groups(message_ids: Sequence[int]) -> list[_Group]:
    """Messages by the set of subscriptions that want them; mostly one set a business system.

    Subscriptions are read after the claim: one that was there when a message was accepted is seen.
    """
    rows = BizMsg.objects.filter(id__in=message_ids).order_by("id")
    messages = list(rows.values_list("id", "biz_id", "event_type", "channel"))
    filters = _filters({biz_id for _, biz_id, _, _ in messages})
    wanted: dict[tuple[int, str, str], tuple[int, ...]] = {}
    groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for message_id, biz_id, event_type, channel in messages:
        kind = (biz_id, event_type, channel)
        if kind not in wanted:
            of_biz = filters.get(biz_id, ())
            wanted[kind] = tuple(pk for pk, rule in of_biz if rule.wants(event_type, channel))
        groups[wanted[kind]].append(message_id)
    groups.pop((), None)  # nobody wants these
    return list(groups.items())


def _filters(biz_ids: Iterable[int]) -> dict[int, list[tuple[int, Filter]]]:
    rows = BizReceive.objects.filter(biz_id__in=biz_ids).exclude(status=BizReceive.Status.DISCARDED)
    found: dict[int, list[tuple[int, Filter]]] = defaultdict(list)
    for pk, biz_id, event_types, channels in rows.order_by("id").values_list(
        "id", "biz_id", "event_types", "channels"
    ):
        found[biz_id].append((pk, _filter(tuple(event_types), tuple(channels))))
    return found


@lru_cache(maxsize=4096)
def _filter(event_types: tuple[str, ...], channels: tuple[str, ...]) -> Filter:
    return compile_filter(event_types, channels)


def _insert(groups: Iterable[_Group], block: ids.Block) -> None:
    base = block.base
    for subscriptions, messages in groups:
        statement = _INSERT.format(
            now=sql.now_sql(),  # the database's clock: a web host's may be wrong
            messages=",".join(["%s"] * len(messages)),
            subscriptions=",".join(["%s"] * len(subscriptions)),
        )
        with connection.cursor() as cursor:
            cursor.execute(
                sql.keep_existing(statement, "receive_msg"),
                [base, block.node, *_STATES, *messages, *subscriptions],
            )
        base += len(messages) * len(subscriptions)
