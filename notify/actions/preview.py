"""What a bulk action of Notify would change, and what became of what was sent again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

from django.utils.translation import gettext as _

from msgplatform.core.connections import RedisError
from msgplatform.core.data import ids as id_numbers
from msgplatform.core.data import sql
from msgplatform.core.data.chunks import chunks
from msgplatform.core.flows import Ending, Hit, Preview
from msgplatform.core.flows.bulk_pages import Described, Tally
from notify import presence
from notify.archive import stores
from notify.archive.stores import Store, reading
from notify.messages.lines import lines as message_lines
from notify.messages.states import local
from notify.models import BizReceive, ReceiveMsg

T = TypeVar("T")
_CHUNK = 2000
_SHOWN_BREAKERS = 10
_Status = ReceiveMsg.Status
_ENDINGS: Mapping[int, Ending] = {
    _Status.DELIVERED: "arrived", _Status.EXHAUSTED: "failed", _Status.POISON: "failed",
    _Status.SKIPPED: "failed",
}  # fmt: skip
# A subscription's id, 0 where a job is about messages, and an event type.
Kind = tuple[int, str]


def deliveries(delivery_ids: Sequence[int]) -> Described[Kind]:
    """For each delivery its id, subscription and event type, and when its message was accepted."""
    for some in chunks(list(delivery_ids), _CHUNK):
        rows = _deliveries(some)
        types = _types({message for message, _subscription, _status in rows.values()})
        for pk, (message, subscription, _status) in rows.items():
            at = id_numbers.datetime_of(message)
            yield pk, (subscription, types.get(message, "?")), at


def messages(message_ids: Sequence[int]) -> Described[Kind]:
    """The same for messages."""
    for some in chunks(list(message_ids), _CHUNK):
        types = _types(some)
        for pk in some:
            yield pk, (0, types.get(pk, "?")), id_numbers.datetime_of(pk)


def of_deliveries(tally: Tally[Kind], started_at: datetime) -> Preview:
    subscription_ids = {subscription for subscription, _event_type in tally.groups}
    rows = BizReceive.objects.filter(id__in=subscription_ids).select_related("biz", "receive")
    subscriptions = {row.pk: row for row in rows}
    titles = {
        (pk, event_type): f"{subscriptions.get(pk, pk)} · {event_type}"
        for pk, event_type in tally.groups
    }
    deliveries_by_id = _deliveries(tally.sample)
    sample = _lines([deliveries_by_id[pk][0] for pk in tally.sample if pk in deliveries_by_id])
    # The limit of the one subscription that gets all of them.
    (only,) = subscriptions.values() if len(subscriptions) == 1 else (None,)
    counts = tally.preview(started_at, titles, sample, only.rate_limit if only else None)
    return replace(counts, notices=_open_breakers(subscriptions.values()))


def of_messages(tally: Tally[Kind], started_at: datetime) -> Preview:
    titles = {kind: kind[1] for kind in tally.groups}
    return tally.preview(started_at, titles, _lines(tally.sample))


def outcome(delivery_ids: Sequence[str]) -> dict[str, Ending]:
    """What became of these deliveries. Raises Unavailable when the archive cannot be read."""
    rows = _deliveries([int(pk) for pk in delivery_ids])
    return {
        str(pk): _ENDINGS.get(status, "waiting")
        for pk, (_message, _subscription, status) in rows.items()
    }


def why_waiting(delivery_ids: Sequence[str]) -> list[str]:
    """The open breakers behind which some of these deliveries wait."""
    rows = _deliveries([int(pk) for pk in delivery_ids]).values()
    ids = {subscription for _message, subscription, status in rows if status not in _ENDINGS}
    return _open_breakers(BizReceive.objects.filter(id__in=ids).select_related("biz", "receive"))


def _open_breakers(subscriptions: Iterable[BizReceive]) -> list[str]:
    """A sentence about each subscription whose breaker is open; none when Redis is unavailable."""
    try:
        lanes = presence.read()
    except RedisError:
        return []
    text = _(
        "%(subscription)s: its breaker is open. The next probe may go at %(at)s; the others wait "
        "until one succeeds."
    )
    now = sql.now()
    return [
        text % {"subscription": row, "at": local(now + timedelta(seconds=lanes[row.pk].retry_in))}
        for row in subscriptions
        if row.pk in lanes and lanes[row.pk].is_open
    ][:_SHOWN_BREAKERS]


def lines(delivery_ids: Sequence[str]) -> list[Hit]:
    """The messages of these deliveries, each once. Raises Unavailable as well."""
    rows = _deliveries([int(pk) for pk in delivery_ids])
    return _lines([rows[int(pk)][0] for pk in delivery_ids if int(pk) in rows])


def _deliveries(delivery_ids: Collection[int]) -> dict[int, tuple[int, int, int]]:
    """Delivery → its message, subscription and status, of those that are anywhere."""
    columns = ("id", "msg_id", "biz_receive_id", "status")
    return _anywhere(
        delivery_ids,
        lambda place, ids: {
            pk: (message, subscription, status)
            for pk, message, subscription, status in place.deliveries.filter(id__in=ids)
            .order_by()
            .values_list(*columns)
        },
    )


def _types(message_ids: Collection[int]) -> dict[int, str]:
    """Message → its event type."""
    return _anywhere(
        message_ids,
        lambda place, ids: dict(
            place.messages.filter(id__in=ids).order_by().values_list("id", "event_type")
        ),
    )


def _lines(message_ids: Sequence[int]) -> list[Hit]:
    """The messages as a search shows them, in this order, each once."""
    lines_by_id = _anywhere(message_ids, lambda store, ids: message_lines(store, {}, ids))
    return [lines_by_id[pk] for pk in dict.fromkeys(message_ids) if pk in lines_by_id]


def _anywhere(
    ids: Collection[int], read: Callable[[Store, list[int]], dict[int, T]]
) -> dict[int, T]:
    """What is read of these rows in the place where they are."""
    answers: dict[int, T] = {}
    # Hot first: what moves meanwhile is in the archive before its hot row is gone.
    for place in (stores.hot(), stores.cold()):
        remaining_ids = [pk for pk in ids if pk not in answers]
        if remaining_ids:
            with reading(place):
                answers |= read(place, remaining_ids)
    return answers
