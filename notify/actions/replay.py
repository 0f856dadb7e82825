"""Send again by time: every delivery of a subscription (Replay), or those that never succeeded
(ReplayFailed).

Both read the messages of that time page by page, hot and archived ones, in the order of their ids,
and send the deliveries of each page.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from django.utils.translation import gettext as _

from msgplatform.core.data import ids as id_numbers
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows import Applied
from msgplatform.core.flows.bulk_pages import Page, read_id
from msgplatform.core.flows.messages import Values
from notify.actions.deliveries import FAILED, ended, resend_deliveries
from notify.archive import stores
from notify.archive.stores import Store, reading
from notify.models import BizMsg, BizReceive, ReceiveMsg

MESSAGES = 500  # in a page
PAGES = 10  # most pages that one step reads while it finds no delivery to send
_Status = ReceiveMsg.Status


class Messages:
    """The ids of messages that match a filter, in their order, page by page.

    Only messages in these places that came before `started_at` and have been split.
    """

    def __init__(self, values: Values, started_at: datetime, places: Sequence[Store]) -> None:
        self._places = places
        self._event_type = values.get("event_type")
        end = id_numbers.first_id_at(started_at)
        self._until = min(values.get("until", end), end)
        self._since = values.get("since", 0)
        self._biz = values.get("biz")
        if "subscription" in values:
            rows = BizReceive.objects.filter(id=values["subscription"])
            biz = rows.values_list("biz_id", flat=True).first()
            if biz is None or values.get("biz", biz) != biz:
                raise InvalidInput(_("there is no such subscription"), "subscription")
            self._biz = biz

    def page(self, position: str, limit: int = MESSAGES) -> tuple[list[int], str]:
        """The matching ones of the next `limit` messages after a position, and the next position,
        '' at the end. There may be none, and more behind them."""
        first = max(self._since, read_id(position) + 1) if position else self._since
        message_ids: set[int] = set()
        for place in self._places:
            with reading(place):
                rows = place.messages.filter(id__gte=first, id__lt=self._until)
                if self._biz is not None:
                    rows = rows.filter(biz_id=self._biz)
                message_ids.update(rows.order_by("id").values_list("id", flat=True)[:limit])
        page = sorted(message_ids)[:limit]
        if not page:
            return [], ""
        following = str(page[-1]) if len(page) == limit else ""
        split: set[int] = set()
        # Asked of this page only: in the query above, a rare event type would make the database
        # read any number of rows for one page.
        for place in self._places:
            with reading(place):
                rows = place.messages.filter(id__in=page)
                if not place.cold:  # every archived message has been split
                    rows = rows.filter(state=BizMsg.State.DISTRIBUTED)
                if self._event_type is not None:
                    rows = rows.filter(event_type=self._event_type)
                split.update(rows.values_list("id", flat=True))
        return sorted(split), following


def _hot(messages: Sequence[int]) -> set[int]:
    return set(BizMsg.objects.filter(id__in=messages).values_list("id", flat=True))


class Replay:
    """All deliveries for a subscription since a time, those that succeeded too; archived messages
    come back for it."""

    statuses: tuple[int, ...] = (_Status.DELIVERED, *FAILED.values())

    def __init__(self, values: Values, started_at: datetime) -> None:
        self._values, self._begun = values, started_at
        self._messages = Messages(values, started_at, (stores.hot(), stores.cold()))

    def apply(self, ids: Sequence[int]) -> Applied:
        return Applied(resend_deliveries(ids, self.statuses, self._begun))

    def page(self, position: str, limit: int) -> Page:
        for _page in range(PAGES):
            messages, following = self._messages.page(position)
            pairs = self._deliveries(messages)
            if len(pairs) > limit:
                # Whole messages only, because the position is a message: those before the one that
                # does not fit, or that one alone when it is the first.
                first_beyond = pairs[limit][1]
                page_pairs = [pair for pair in pairs if pair[1] < first_beyond]
                page_pairs = page_pairs or [pair for pair in pairs if pair[1] == first_beyond]
                return Page([pk for pk, _ in page_pairs], str(page_pairs[-1][1]))
            if pairs or not following:
                return Page([pk for pk, _ in pairs], following)
            position = following
        return Page([], position)

    def _deliveries(self, messages: Sequence[int]) -> list[tuple[int, int]]:
        """The deliveries to send: (delivery, message), in the order of the messages."""
        # A message that was brought back is in the archive too: its hot deliveries count. Asked
        # again after they were read: the archiver, or somebody who brings one back, may have moved
        # some meanwhile, and the deliveries of those would be read from neither place.
        while True:
            hot = _hot(messages)
            pairs = self._in_place(stores.hot(), sorted(hot))
            if _hot(messages) == hot:
                break
        pairs += self._in_place(stores.cold(), [pk for pk in messages if pk not in hot])
        return sorted(pairs, key=lambda pair: (pair[1], pair[0]))

    def _in_place(self, place: Store, messages: Sequence[int]) -> list[tuple[int, int]]:
        with reading(place):
            rows = ended(place, self.statuses, self._begun).filter(msg_id__in=messages)
            if "subscription" in self._values:
                rows = rows.filter(biz_receive_id=self._values["subscription"])
            return list(self.narrowed(rows).order_by().values_list("id", "msg_id"))

    def narrowed(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """For subclasses: those of these deliveries that are sent again."""
        return rows


class ReplayFailed(Replay):
    """Deliveries that never succeeded; those that wait for another attempt are sent now."""

    statuses = (*FAILED.values(), _Status.PENDING)

    def __init__(self, values: Values, started_at: datetime) -> None:
        if "biz" not in values and "subscription" not in values:
            raise InvalidInput(_("choose a subscription or a business system"), "subscription")
        super().__init__(values, started_at)

    def narrowed(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        # A pending delivery without an attempt has not failed: its first attempt is still to come.
        return rows.exclude(status=_Status.PENDING, send_times=0)
