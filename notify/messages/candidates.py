"""Ids of messages that may match, descending, from the index that narrows most."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db.models import Q, QuerySet

from msgplatform.core.data import ids as id_numbers
from msgplatform.core.data import sql
from msgplatform.core.errors import InvalidInput
from msgplatform.models import Biz
from notify.archive.stores import Store
from notify.messages.filters import Filter
from notify.models import BizMsg, BizReceive, IdempotencyKey, ReceiveMsg

ACCEPTED = "accepted"
STATUSES = {status.name.lower(): status for status in ReceiveMsg.Status}
# Deliveries in a status that are few enough to be sorted by their message; when there are more,
# messages are walked and asked for it.
FEW = 20_000
_SYSTEMS = 100  # whose keys are asked for in one statement


class Candidates:
    """Reads pages of ids. `residual`: the rest of the filter must be asked of each page."""

    def __init__(self, filter: Filter) -> None:
        if filter.status is not None and filter.status not in (ACCEPTED, *STATUSES):
            raise InvalidInput(f"use {', '.join((ACCEPTED, *STATUSES))}", "status")
        self._filter = filter
        self._named = filter.id is not None or filter.key is not None
        self._biz = filter.biz
        if filter.biz is None and filter.subscription is not None:
            owner = BizReceive.objects.filter(id=filter.subscription)
            self._biz = owner.values_list("biz_id", flat=True).first()
        # What `_few` found, in a list of one; empty: not asked yet.
        self._asked_few: list[set[int] | None] = []
        asked = [filter.event_type, filter.biz, filter.subscription, filter.status]
        beyond = [filter.channel, filter.text]
        self.residual = (
            self._named
            or any(value is not None for value in beyond)
            or sum(value is not None for value in asked) > 1
            or filter.subscription is not None
            or filter.status not in (None, ACCEPTED)
        )

    def page(self, place: Store, before: int, size: int) -> list[int]:
        """Up to `size` ids below `before`; fewer: there are no others in this place."""
        return list(self.rows(place, before)[:size])

    def rows(self, place: Store, before: int) -> Any:
        """All of them, as a query or a list, descending; the index is chosen here."""
        filter = self._filter
        if self._named:
            return self._among_named(place, before)
        if filter.status == ACCEPTED:
            if place.cold:
                return []
            return self._ids(place.messages.filter(state=BizMsg.State.ACCEPTED), before)
        if place.cold and (filter.subscription is not None or filter.status is not None):
            # Indexes of archived deliveries go on with the message's id.
            by_status = {"status": STATUSES.get(filter.status or "")}
            by_subscription = {"biz_receive_id": filter.subscription}
            by = by_status if filter.subscription is None else by_subscription
            return self._ids(place.deliveries.filter(**by), before, "msg_id").distinct()
        if filter.status is not None and (few := self._few(place)) is not None:
            return sorted((pk for pk in few if self._in_bounds(pk, before)), reverse=True)
        if filter.event_type is not None and filter.subscription is None:
            return self._ids(place.messages.filter(event_type=filter.event_type), before)
        if self._biz is not None:
            rows = self._ids(sql.of_one(place.messages, "biz_id", self._biz), before)
            return rows.order_by("-biz_id", "-id")
        return self._ids(place.messages, before)

    def _ids(self, rows: QuerySet[Any], before: int, column: str = "id") -> QuerySet[Any, int]:
        """One index holds the condition and the order; no row of the table is read."""
        bounds = {f"{column}__lt": before, f"{column}__gte": self._filter.since or 0}
        return rows.filter(**bounds).order_by(f"-{column}").values_list(column, flat=True)

    def _few(self, place: Store) -> set[int] | None:
        """Messages of the hot deliveries in the status asked for; None when there are too many.
        Read once in a search, whatever the number of its pages."""
        if not self._asked_few:
            rows = place.deliveries.filter(status=STATUSES[self._filter.status or ""]).order_by()
            if self._filter.subscription is not None:
                rows = rows.filter(biz_receive_id=self._filter.subscription)
            are_few = rows.values("id")[: FEW + 1].count() <= FEW
            self._asked_few = [set(rows.values_list("msg_id", flat=True)) if are_few else None]
        return self._asked_few[0]

    def _in_bounds(self, pk: int, before: int) -> bool:
        return (self._filter.since or 0) <= pk < before

    def _among_named(self, place: Store, before: int) -> list[int]:
        """The messages that id and key name: an id may be a delivery's."""
        found: list[set[int]] = []
        if self._filter.id is not None:
            of_delivery = place.deliveries.filter(id=self._filter.id)
            found.append({self._filter.id, *of_delivery.values_list("msg_id", flat=True)})
        if self._filter.key is not None:
            found.append(set(_by_key(place, self._filter.key)))
        wanted = [pk for pk in set.intersection(*found) if self._in_bounds(pk, before)]
        there = place.messages.filter(id__in=wanted).values_list("id", flat=True)
        return sorted(there, reverse=True)


def _by_key(place: Store, key: str) -> Iterable[int]:
    if place.cold:
        yield from place.messages.filter(key=key).values_list("id", flat=True)
        return
    # The index begins with the bucket, which follows from business system and key.
    systems = list(Biz.objects.order_by("id").values_list("id", flat=True))
    for start in range(0, len(systems), _SYSTEMS):
        buckets = Q()
        for biz_id in systems[start : start + _SYSTEMS]:
            buckets |= Q(bucket=id_numbers.bucket(biz_id, key), biz_id=biz_id, key=key)
        yield from IdempotencyKey.objects.filter(buckets).values_list("id", flat=True)
