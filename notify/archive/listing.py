"""Hot and archived messages as one list, for the API.

`Messages` is as much of a queryset as pagination and views ask of one: `filter`, `order_by`, a
slice, `get`. It gives `BizMsg` instances with their deliveries (and attempts) read. An archived
message is such an instance too, made from the archive's row, with `archived` set.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, TypeVar

from django.db import models
from django.db.models import Count, Model, Q, QuerySet
from django.utils import timezone

from msgplatform.core.archive.ages import horizon
from msgplatform.core.data import sql
from msgplatform.core.data.chunks import chunks
from msgplatform.core.errors import Unavailable
from notify.archive import retention, stores
from notify.archive.stores import Store, reading
from notify.models import Attempt, BizMsg, BizReceive, ReceiveMsg

# Keys in one IN list.
_CHUNK = 500
MAX_DELIVERIES = 10_000  # of the messages of a page, if it has more than one
# Of the deliveries of a message: each has at least its latest one. One may have some KiB.
MAX_ATTEMPTS = 500
_Row = TypeVar("_Row", bound=Model)


class Found(list[BizMsg]):
    """Messages in their order; `reached` is the last one when the page ends there, because there
    are so many deliveries."""

    reached: BizMsg | None = None


class Messages:
    """Messages of one business system, newest first unless `order_by` says otherwise."""

    model = BizMsg

    def __init__(
        self, biz_id: int, event_type: str = "", attempts: bool = False, payload: bool = False
    ) -> None:
        """Without `event_type` of all types; payloads are read only with `payload`."""
        self._biz_id, self._event_type = biz_id, event_type
        self._conditions = list[Q]()
        self._attempts, self._payload = attempts, payload
        self._order: tuple[str, ...] = ("-id",)

    def filter(self, *conditions: Q, **named: Any) -> Messages:
        """On columns that both tables have."""
        other = copy.copy(self)
        other._conditions = [*self._conditions, *conditions, Q(**named)]
        return other

    def order_by(self, *names: str) -> Messages:
        """Only by id, up or down: rows of two tables are merged."""
        if names not in (("id",), ("-id",)):
            raise ValueError("messages are ordered by id")
        other = copy.copy(self)
        other._order = names
        return other

    def get(self, **named: Any) -> BizMsg:
        """The one message. Raises BizMsg.DoesNotExist, or Unavailable when it is not among the hot
        ones and the archive cannot be read."""
        for place in (stores.hot(), stores.cold()):
            with reading(place):
                if found := self.filter(**named)._read(place, 1):
                    _add_consumers(found)
                    return found[0]
        raise BizMsg.DoesNotExist

    def __getitem__(self, wanted: slice) -> Found:
        """The first n, or fewer. Raises Unavailable when archived messages belong among them and
        cannot be read."""
        if not isinstance(wanted, slice) or wanted.start or wanted.step or wanted.stop is None:
            raise TypeError("only the first messages, [:n], can be read")
        hot, cold = self._read(stores.hot(), wanted.stop), stores.cold()
        found = {message.pk: message for message in hot}
        try:
            with reading(cold):
                archived = self._read(cold, wanted.stop)
        except Unavailable:
            # A full page of messages that are too young for the archive needs no archive.
            is_young = found and min(found) >= horizon(timezone.now(), retention.keep())
            is_full = len(found) == wanted.stop or hot.reached is not None
            if not is_full or self._order != ("-id",) or not is_young:
                raise
            archived = Found()
        for message in archived:
            # What is in both places moved meanwhile, or was brought back: the hot row counts.
            found.setdefault(message.pk, message)
        ordered = sorted(found.values(), key=lambda m: m.pk, reverse=self._order == ("-id",))
        page = Found(ordered[: wanted.stop])
        reached = [part.reached for part in (hot, archived) if part.reached is not None]
        ends = [page.index(message) for message in reached if message in page]
        if ends:  # behind the first of them messages of that place are missing
            del page[min(ends) + 1 :]
            page.reached = page[-1] if len(page) < wanted.stop else None
        _add_consumers(page)
        return page

    def _read(self, place: Store, size: int) -> Found:
        sign = "-" if self._order == ("-id",) else ""
        rows = sql.of_one(place.messages, "biz_id", self._biz_id).filter(*self._conditions)
        # The order names all columns of the index, so that no database sorts.
        rows = rows.order_by(f"{sign}biz_id", *self._order)
        if self._event_type:
            rows = sql.of_one(rows, "event_type", self._event_type)
            rows = rows.order_by(f"{sign}biz_id", f"{sign}event_type", *self._order)
        # Payloads are most of the bytes; key and archived_at are columns of the archive only.
        hidden = [] if self._payload else ["payload"]
        hidden += ["key", "archived_at"] if place.cold else []
        messages = Found()
        for row in rows.defer(*hidden)[:size]:
            message = row
            if place.cold:
                payload = row.__dict__.get("payload", models.DEFERRED)
                names = ("id", "biz_id", "event_type", "channel", "created_at")
                message = _as(BizMsg, row, names, payload=payload, state=BizMsg.State.SPLIT)
            message.archived = place.cold
            messages.append(message)
        if len(messages) > 1:
            _cut(messages, place)
        self._add_deliveries(place, messages)
        return messages

    def _add_deliveries(self, place: Store, messages: Sequence[BizMsg]) -> None:
        """Read the deliveries of all messages at once, then all attempts of these."""
        deliveries: dict[int, list[ReceiveMsg]] = defaultdict(list)
        message_ids = [message.pk for message in messages]
        for row in place.deliveries_of(message_ids).order_by("id") if message_ids else ():
            hot = _as(ReceiveMsg, row, next_at=row.updated_at) if place.cold else row
            deliveries[row.msg_id].append(hot)
        for message in messages:
            message.listed_deliveries = deliveries[message.pk]
        if not self._attempts:
            return
        attempts: dict[int, list[Attempt]] = defaultdict(list)
        found = [delivery for message in messages for delivery in message.listed_deliveries]
        each = max(1, MAX_ATTEMPTS // max(1, len(found)))
        for some in chunks(sorted(delivery.pk for delivery in found), _CHUNK):
            rows = place.attempts_of(some).order_by("id")
            for row in rows.filter(id__in=_latest(rows, each)):
                attempts[row.copy_id].append(_as(Attempt, row) if place.cold else row)
        for delivery in found:
            delivery.listed_attempts = attempts[delivery.pk]


def _add_consumers(messages: Sequence[BizMsg]) -> None:
    """The name of each delivery's consumer; one statement."""
    deliveries = [delivery for message in messages for delivery in message.listed_deliveries]
    ids = {delivery.biz_receive_id for delivery in deliveries}
    rows = BizReceive.objects.filter(id__in=ids).values_list("id", "receive__name")
    names: dict[int, str] = dict(rows) if ids else {}
    for delivery in deliveries:
        delivery.listed_consumer = names.get(delivery.biz_receive_id)


def _cut(messages: Found, place: Store) -> None:
    """Leave as many as have MAX_DELIVERIES together, and at least one."""
    rows = place.deliveries_of([message.pk for message in messages]).order_by()
    counts = dict(rows.values_list("msg_id").annotate(Count("id")))
    sums = accumulate(counts.get(message.pk, 0) for message in messages)
    fitting = max(1, sum(deliveries <= MAX_DELIVERIES for deliveries in sums))
    if fitting < len(messages):
        del messages[fitting:]
        messages.reached = messages[-1]


def _latest(rows: QuerySet[Any], each: int) -> list[int]:
    """The ids of the latest attempts of each delivery."""
    of_delivery: dict[int, list[int]] = defaultdict(list)
    for delivery, attempt in rows.values_list("copy_id", "id"):
        of_delivery[delivery].append(attempt)
    return [attempt for found in of_delivery.values() for attempt in found[-each:]]


def _as(model: type[_Row], row: Any, names: Iterable[str] = (), **others: Any) -> _Row:
    """An instance of a hot model with the values of an archived row, of all its fields or some."""
    names = names or [field.attname for field in row._meta.concrete_fields]
    return model(**{name: getattr(row, name) for name in names}, **others)
