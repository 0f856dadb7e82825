"""Send again by time: everything a subscription was to get, or what never arrived.

Both walk messages in the order of their ids and take the copies of each page.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db.models import QuerySet

from msgplatform.core.bulk_cursor import read_id
from msgplatform.core.data import ids as id_numbers
from msgplatform.core.errors import InvalidInput
from notify.bulk.requeue import FAILED, Page, again
from notify.models import BizMsg, BizReceive, ReceiveMsg
from notify.search.filters import Filter

MESSAGES = 500  # read at once
PAGES = 10  # read in one step when nothing matches
_Status = ReceiveMsg.Status


class Messages:
    """Split messages of a filter, in the order of their ids, none that came after `begun`."""

    def __init__(self, filter: Filter, begun: datetime) -> None:
        self._event_type = filter.event_type
        newest = id_numbers.first_id_at(begun)
        self._until = newest if filter.until is None else min(filter.until, newest)
        self._since = filter.since or 0
        self._biz = filter.biz
        if filter.subscription is not None:
            rows = BizReceive.objects.filter(id=filter.subscription)
            biz = rows.values_list("biz_id", flat=True).first()
            if biz is None or filter.biz not in (None, biz):
                raise InvalidInput("there is no such subscription", "subscription")
            self._biz = biz

    def page(self, position: str, limit: int = MESSAGES) -> tuple[list[int], str]:
        """Up to `limit` messages after a position, and the next position; '' at the end."""
        first = max(self._since, read_id(position) + 1) if position else self._since
        rows = BizMsg.objects.filter(id__gte=first, id__lt=self._until)
        if self._biz is not None:
            rows = rows.filter(biz_id=self._biz)
        page = list(rows.order_by("id").values_list("id", flat=True)[:limit])
        if not page:
            return [], ""
        following = str(page[-1]) if len(page) == limit else ""
        split = BizMsg.objects.filter(id__in=page, state=BizMsg.State.SPLIT)
        if self._event_type is not None:
            split = split.filter(event_type=self._event_type)
        return list(split.order_by("id").values_list("id", flat=True)), following


class Replay:
    """All copies of a subscription since a time, the delivered ones too."""

    statuses: tuple[int, ...] = (_Status.DELIVERED, *FAILED.values())

    def __init__(self, filter: Filter, begun: datetime) -> None:
        self._filter, self._begun = filter, begun
        self._messages = Messages(filter, begun)

    def apply(self, ids: Sequence[int]) -> int:
        return again(ids, self.statuses, self._begun)

    def page(self, position: str, limit: int) -> Page:
        for _ in range(PAGES):
            messages, following = self._messages.page(position)
            found = list(self._copies(messages))
            if len(found) > limit:
                return _cut(found, limit)
            if found or not following:
                return Page([copy_id for copy_id, _ in found], following)
            position = following
        return Page([], position)

    def _copies(self, messages: Sequence[int]) -> QuerySet[ReceiveMsg, tuple[int, int]]:
        rows = ReceiveMsg.objects.filter(
            msg_id__in=messages, status__in=self.statuses, updated_at__lte=self._begun
        )
        if self._filter.subscription is not None:
            rows = rows.filter(biz_receive_id=self._filter.subscription)
        return self.narrowed(rows).order_by("msg_id", "id").values_list("id", "msg_id")

    def narrowed(self, rows: QuerySet[ReceiveMsg]) -> QuerySet[ReceiveMsg]:
        return rows


class ReplayFailed(Replay):
    """What never succeeded: also what waits for its next attempt, which then comes at once."""

    statuses = (*FAILED.values(), _Status.PENDING)

    def __init__(self, filter: Filter, begun: datetime) -> None:
        if filter.biz is None and filter.subscription is None:
            raise InvalidInput("choose a subscription or a business system", "subscription")
        super().__init__(filter, begun)

    def narrowed(self, rows: QuerySet[ReceiveMsg]) -> QuerySet[ReceiveMsg]:
        return rows.exclude(status=_Status.PENDING, send_times=0)


def _cut(found: Sequence[tuple[int, int]], limit: int) -> Page:
    """About `limit` copies, but all of a message's: the position is a message."""
    last = found[limit - 1][1]
    if found[limit][1] == last:  # in the middle of a message's copies
        whole = [pair for pair in found if pair[1] < last]
        if whole:
            return Page([copy_id for copy_id, _ in whole], str(whole[-1][1]))
    taken = [pair for pair in found if pair[1] <= last]
    return Page([copy_id for copy_id, _ in taken], str(last))
