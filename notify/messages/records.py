"""Messages with their deliveries for the API, hot and archived messages alike.

An archived message is a `BizMsg` too, made from the archive's row, with `archived` set.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeVar

from django.db.models import DEFERRED, Count, Model, QuerySet

from msgplatform.core.data import chunks
from notify.archive import stores
from notify.archive.stores import Store, reading
from notify.messages.filtered import filtered_out
from notify.models import Attempt, BizMsg, BizReceive, ReceiveMsg

_CHUNK = 500  # deliveries of one statement
MAX_DELIVERIES = 10_000  # on a page with more than one message
# Attempts of a message, but at least the latest of each delivery. An attempt may have some KiB.
MAX_ATTEMPTS = 500
_Row = TypeVar("_Row", bound=Model)


def records(biz_id: int, ids: Sequence[int]) -> Mapping[int, BizMsg]:
    """These messages of a system in this order, with their deliveries. Only the first messages
    with at most MAX_DELIVERIES together are returned. Raises Unavailable when a message may be in
    the archive and the archive cannot be read."""
    messages: dict[int, BizMsg] = {}
    counts: dict[int, int] = {}
    for store in stores.both():
        # A message that was brought back is in both stores; the hot row counts.
        if other_ids := [pk for pk in ids if pk not in messages]:
            with reading(store):
                rows = list(_rows(store, biz_id).filter(id__in=other_ids).defer("payload"))
                messages |= {row.pk: _message(store, row) for row in rows}
                deliveries = store.deliveries_of([row.pk for row in rows]).order_by()
                counts |= dict(deliveries.values_list("msg_id").annotate(Count("id")))
    page = [messages[pk] for pk in ids if pk in messages]
    sums = accumulate(counts.get(message.pk, 0) for message in page)
    page = page[: max(1, sum(count <= MAX_DELIVERIES for count in sums))]
    for store in stores.both():
        with reading(store):
            _add_deliveries(store, [row for row in page if row.archived == store.cold])
    _add_consumers(page)
    return {message.pk: message for message in page}


def record(biz_id: int, id: int, has_payload: bool) -> BizMsg | None:
    """One message of a system with its deliveries and their attempts; None for an unknown id.
    Raises Unavailable when the message is not in the hot tables and the archive cannot be read."""
    for store in stores.both():
        with reading(store):
            rows = _rows(store, biz_id).filter(id=id)
            if row := (rows if has_payload else rows.defer("payload")).first():
                message = _message(store, row)
                if has_payload:
                    stores.unseal(message)
                _add_deliveries(store, [message])
                _add_attempts(store, message.listed_deliveries)
                _add_consumers([message])
                message.listed_filtered = filtered_out(store, row)
                return message
    return None


def _rows(store: Store, biz_id: int) -> QuerySet[Any]:
    return store.messages.filter(biz_id=biz_id).order_by()


def _message(store: Store, row: Any) -> BizMsg:
    message: BizMsg = row
    if store.cold:
        payload = row.__dict__.get("payload", DEFERRED)
        names = ("id", "biz_id", "event_type", "channel", "created_at")
        message = _as(BizMsg, row, names, payload=payload, state=BizMsg.State.DISTRIBUTED)
    message.archived = store.cold
    return message


def _add_deliveries(store: Store, messages: Sequence[BizMsg]) -> None:
    """Read the deliveries of all messages at once."""
    deliveries: dict[int, list[ReceiveMsg]] = defaultdict(list)
    message_ids = [message.pk for message in messages]
    for row in store.deliveries_of(message_ids).order_by("id") if message_ids else ():
        delivery = _as(ReceiveMsg, row, next_at=row.updated_at) if store.cold else row
        deliveries[row.msg_id].append(delivery)
    for message in messages:
        message.listed_deliveries = deliveries[message.pk]


def _add_attempts(store: Store, deliveries: Sequence[ReceiveMsg]) -> None:
    attempts: dict[int, list[Attempt]] = defaultdict(list)
    max_attempts = max(1, MAX_ATTEMPTS // max(1, len(deliveries)))
    for chunk_ids in chunks(sorted(delivery.pk for delivery in deliveries), _CHUNK):
        rows = store.attempts_of(chunk_ids).order_by("id")
        ids_by_delivery: dict[int, list[int]] = defaultdict(list)
        for delivery_id, attempt_id in rows.values_list("copy_id", "id"):
            ids_by_delivery[delivery_id].append(attempt_id)
        latest_ids = [pk for ids in ids_by_delivery.values() for pk in ids[-max_attempts:]]
        for row in rows.filter(id__in=latest_ids):
            attempts[row.copy_id].append(_as(Attempt, row) if store.cold else row)
    for delivery in deliveries:
        delivery.listed_attempts = attempts[delivery.pk]


def _add_consumers(messages: Sequence[BizMsg]) -> None:
    """Set the name of each delivery's consumer, with one statement."""
    deliveries = [delivery for message in messages for delivery in message.listed_deliveries]
    ids = {delivery.biz_receive_id for delivery in deliveries}
    rows = BizReceive.objects.filter(id__in=ids).values_list("id", "receive__name")
    names: dict[int, str] = dict(rows) if ids else {}
    for delivery in deliveries:
        delivery.listed_consumer = names.get(delivery.biz_receive_id)


def _as(model: type[_Row], row: Any, names: Iterable[str] = (), **others: Any) -> _Row:
    """An instance of a hot model with values of an archived row: the fields `names`, or all."""
    names = names or [field.attname for field in row._meta.concrete_fields]
    return model(**{name: getattr(row, name) for name in names}, **others)
