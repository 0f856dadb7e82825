"""Messages with their deliveries for the API: rows of the hot tables and of the archive alike.

Each message has its deliveries as `listed_deliveries`, each delivery the name of its consumer as
`listed_consumer`, None after its subscription was deleted.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from copy import copy
from itertools import accumulate
from typing import Any

from django.db.models import Count, QuerySet

from msgplatform.core.data import chunks
from notify.archive import stores
from notify.archive.stores import Store, reading
from notify.messages.filtered import filtered_out
from notify.models import BizReceive

_CHUNK = 500  # deliveries of one statement
MAX_DELIVERIES = 10_000  # on a page with more than one message
# Attempts of a message, but at least the latest of each delivery. An attempt may have some KiB.
MAX_ATTEMPTS = 500


def records(biz_id: int, ids: Sequence[int]) -> Mapping[int, Any]:
    """These messages of a system in this order, with their deliveries. Only the first messages
    with at most MAX_DELIVERIES together are returned. Raises Unavailable when a message may be in
    the archive and the archive cannot be read."""
    messages: dict[int, Any] = {}
    counts: dict[int, int] = {}
    for store in stores.both():
        # A message that was brought back is in both stores; the hot row counts.
        if other_ids := [pk for pk in ids if pk not in messages]:
            with reading(store):
                rows = _rows(store, biz_id).filter(id__in=other_ids).defer("payload").in_bulk()
                messages |= rows
                deliveries = store.deliveries_of(list(rows)).order_by()
                counts |= dict(deliveries.values_list("msg_id").annotate(Count("id")))
    page = [messages[pk] for pk in ids if pk in messages]
    sums = accumulate(counts.get(message.pk, 0) for message in page)
    page = page[: max(1, sum(count <= MAX_DELIVERIES for count in sums))]
    for store in stores.both():
        with reading(store):
            own_messages = [row for row in page if isinstance(row, store.messages.model)]
            _add_deliveries(store, own_messages)
    _add_consumers(page)
    return {message.pk: message for message in page}


def record(biz_id: int, message_id: int, has_payload: bool) -> Any:
    """One message of a system with its deliveries, their attempts (`listed_attempts`) and the
    subscriptions that filter it out (`listed_filtered`); None for an unknown id. Raises Unavailable
    when the message is not in the hot tables and the archive cannot be read."""
    for store in stores.both():
        with reading(store):
            rows = _rows(store, biz_id).filter(id=message_id)
            if message := (rows if has_payload else rows.defer("payload")).first():
                if has_payload:
                    stores.unseal(message)
                _add_deliveries(store, [message])
                _add_attempts(store, message.listed_deliveries)
                _add_consumers([message])
                # A copy, because filters read the payload, and the answer has what was read.
                message.listed_filtered = filtered_out(store, copy(message))
                return message
    return None


def _rows(store: Store, biz_id: int) -> QuerySet[Any]:
    return store.messages.filter(biz_id=biz_id).order_by()


def _add_deliveries(store: Store, messages: Sequence[Any]) -> None:
    """Read the deliveries of all messages at once."""
    deliveries: dict[int, list[Any]] = defaultdict(list)
    message_ids = [message.pk for message in messages]
    for delivery in store.deliveries_of(message_ids).order_by("id") if message_ids else ():
        deliveries[delivery.msg_id].append(delivery)
    for message in messages:
        message.listed_deliveries = deliveries[message.pk]


def _add_attempts(store: Store, deliveries: Sequence[Any]) -> None:
    attempts: dict[int, list[Any]] = defaultdict(list)
    max_attempts = max(1, MAX_ATTEMPTS // max(1, len(deliveries)))
    for chunk_ids in chunks(sorted(delivery.pk for delivery in deliveries), _CHUNK):
        rows = store.attempts_of(chunk_ids).order_by("id")
        ids_by_delivery: dict[int, list[int]] = defaultdict(list)
        for delivery_id, attempt_id in rows.values_list("copy_id", "id"):
            ids_by_delivery[delivery_id].append(attempt_id)
        latest_ids = [pk for ids in ids_by_delivery.values() for pk in ids[-max_attempts:]]
        for attempt in rows.filter(id__in=latest_ids):
            attempts[attempt.copy_id].append(attempt)
    for delivery in deliveries:
        delivery.listed_attempts = attempts[delivery.pk]


def _add_consumers(messages: Sequence[Any]) -> None:
    """Set the name of each delivery's consumer, with one statement."""
    deliveries = [delivery for message in messages for delivery in message.listed_deliveries]
    ids = {delivery.biz_receive_id for delivery in deliveries}
    rows = BizReceive.objects.filter(id__in=ids).values_list("id", "receive__name")
    names: dict[int, str] = dict(rows) if ids else {}
    for delivery in deliveries:
        delivery.listed_consumer = names.get(delivery.biz_receive_id)
