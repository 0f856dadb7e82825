"""Send copies again: a new generation with a fresh budget, and the log of attempts stays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now

from msgplatform.api.filters import MAX_ID, MAX_SELECTION
from msgplatform.core.bulk_cursor import read_id, read_time
from msgplatform.core.data import claims, sql
from msgplatform.core.errors import InvalidInput
from notify.maker import due
from notify.models import BizMsg, BizReceive, ReceiveMsg
from notify.search.filters import Filter

_Status = ReceiveMsg.Status
FAILED = {
    "exhausted": _Status.EXHAUSTED,
    "poison": _Status.POISON,
    "skipped": _Status.SKIPPED,
}
_CHUNK = 500
SCANNED = 5000  # rows that one page reads at most


@dataclass(frozen=True, slots=True)
class Page:
    """Ids that a step is about, and the position after them; '' at the end."""

    ids: list[int]
    position: str


def again(copy_ids: Iterable[int], statuses: Iterable[int], begun: datetime) -> int:
    """Send these copies again if they are in one of the statuses; how many were.

    Only what last changed before `begun`: a step that is repeated finds what it did done.
    """
    found = list(copy_ids)
    rows = ReceiveMsg.objects.filter(status__in=list(statuses), updated_at__lte=begun)
    return sum(
        claims.update_by_key(
            rows.filter(id__in=found[start : start + _CHUNK]),
            {
                "status": _Status.PENDING,
                "send_times": 0,
                "generation": F("generation") + 1,
                "claimed_by": "",
                "next_at": Now(),
                "updated_at": Now(),
            },
        )
        for start in range(0, len(found), _CHUNK)
    )


def selection(copy_ids: Sequence[int]) -> int:
    """Send a person's selection again, whatever its end was, delivered ones too; how many were
    final. Raises InvalidInput when there are more than a request should do."""
    if len(copy_ids) > MAX_SELECTION:
        raise InvalidInput(f"select at most {MAX_SELECTION}; for more, start a bulk job", "ids")
    return again(copy_ids, [*FAILED.values(), _Status.DELIVERED], sql.now())


class Requeue:
    """The bulk action: copies that ended without success, by status and what else is asked."""

    def __init__(self, filter: Filter, begun: datetime) -> None:
        if filter.status not in (None, *FAILED):
            raise InvalidInput("use exhausted, poison or skipped", "status")
        self._filter, self._begun = filter, begun
        default = FAILED.values() if filter.ids is not None else [_Status.EXHAUSTED]
        self._statuses = [FAILED[filter.status]] if filter.status else list(default)

    def apply(self, ids: Sequence[int]) -> int:
        return again(ids, self._statuses, self._begun)

    def page(self, position: str, limit: int) -> Page:
        if self._filter.ids is not None:
            return self._selected(position, limit)
        after = _Position.read(position)
        matches: list[int] = []
        scanned = 0
        for subscription in self._subscriptions(after.subscription):
            while True:
                rows = list(self._rows(subscription, after)[:_CHUNK])
                wanted = self._wanted(rows)
                for copy_id, _message, next_at, _updated in rows:
                    after = _Position(subscription, next_at, copy_id)
                    if copy_id in wanted:
                        matches.append(copy_id)
                        if len(matches) == limit:
                            return Page(matches, after.text())
                scanned += len(rows)
                if scanned >= SCANNED:
                    return Page(matches, after.text())
                if len(rows) < _CHUNK:
                    break
        return Page(matches, "")

    def _selected(self, position: str, limit: int) -> Page:
        after = read_id(position)
        left = [pk for pk in self._filter.ids or () if pk > after]
        rows = ReceiveMsg.objects.filter(
            id__in=left[:limit], status__in=self._statuses, updated_at__lte=self._begun
        )
        found = list(rows.order_by("id").values_list("id", "msg_id", "next_at", "updated_at"))
        wanted = self._wanted(found)
        return Page(sorted(wanted), str(left[limit - 1]) if len(left) > limit else "")

    def _subscriptions(self, first: int) -> list[int]:
        """Those with copies in the status, ascending, an index dive each; from `first` on."""
        rows = BizReceive.objects.filter(id__gte=first)
        if self._filter.subscription is not None:
            rows = rows.filter(id=self._filter.subscription)
        if self._filter.biz is not None:
            rows = rows.filter(biz_id=self._filter.biz)
        found = rows.order_by("id").values_list("id", due.first(self._statuses[0]))
        return [subscription for subscription, next_at in found if next_at is not None]

    def _rows(self, subscription: int, after: _Position) -> QuerySet[ReceiveMsg, tuple[Any, ...]]:
        """In the order of the index (status, biz_receive, next_at): every page costs the same.

        SQLite compares times as texts, of which one moment has two (.5 and .500000): there the
        order is by id, and each page is sorted.
        """
        rows = ReceiveMsg.objects.filter(status=self._statuses[0], biz_receive_id=subscription)
        by_time = connection.vendor == "mysql"
        if after.subscription == subscription:
            later = Q(id__gt=after.id)
            if by_time and after.next_at:
                later |= Q(next_at__gt=after.next_at)
                rows = rows.filter(next_at__gte=after.next_at)
            rows = rows.filter(later)
        ordered = rows.order_by("next_at", "id") if by_time else rows.order_by("id")
        return ordered.values_list("id", "msg_id", "next_at", "updated_at")

    def _wanted(self, rows: Sequence[tuple[int, int, datetime, datetime]]) -> set[int]:
        least = self._filter.since or 0
        below = MAX_ID if self._filter.until is None else self._filter.until
        found = {
            copy_id: message_id
            for copy_id, message_id, _next_at, updated_at in rows
            if least <= message_id < below and updated_at <= self._begun
        }
        if self._filter.event_type is not None and found:
            messages = BizMsg.objects.filter(id__in=set(found.values()))
            right = set(
                messages.filter(event_type=self._filter.event_type).values_list("id", flat=True)
            )
            found = {pk: message_id for pk, message_id in found.items() if message_id in right}
        return set(found)


@dataclass(frozen=True, slots=True)
class _Position:
    """The last copy that was looked at."""

    subscription: int = 0
    next_at: datetime | None = None
    id: int = 0

    @classmethod
    def read(cls, text: str) -> _Position:
        if not text:
            return cls()
        subscription, _, rest = text.partition(",")
        next_at, _, copy_id = rest.partition(",")
        return cls(read_id(subscription), read_time(next_at), read_id(copy_id))

    def text(self) -> str:
        moment = self.next_at.isoformat() if self.next_at else ""
        return f"{self.subscription},{moment},{self.id}"
