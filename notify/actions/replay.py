"""Replay a period: every delivery of a subscription (Replay), or deliveries that never succeeded
(ReplayFailed).

An action reads the messages of the period page by page, hot and archived, in the order of their
ids, and sends the deliveries of each page.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any

from django.db.models import BooleanField, ExpressionWrapper, Q
from django.utils.translation import gettext as _
from msgspec.structs import replace

from msgplatform.core.data import ids as id_numbers
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.actions import Applied
from msgplatform.core.flows.bulk_pages import Page
from msgplatform.core.flows.messages import Check, Source, Values
from msgplatform.messages.engine import select_ids
from notify.actions.resend import FAILED, is_ended, resend_deliveries
from notify.archive import stores
from notify.archive.stores import Store, reading
from notify.messages.index import messages_of
from notify.models import BizMsg, BizReceive, ReceiveMsg

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
            for store in (stores.hot(), stores.cold())
        ]

    def apply(self, ids: Sequence[int]) -> Applied:
        return Applied(resend_deliveries(ids, self.statuses, self._begun))

    def page(self, position: str, limit: int) -> Page:
        page = select_ids(self._sources, self._values, position, limit)
        pairs = self._deliveries(page.ids)
        if len(pairs) <= limit:
            return Page([pk for pk, _ in pairs], page.position)
        # A page has whole messages, because the position is a message: the messages before the
        # first that does not fit. A first message that does not fit is a page alone.
        first_beyond = pairs[limit][1]
        page_pairs = [pair for pair in pairs if pair[1] < first_beyond]
        page_pairs = page_pairs or [pair for pair in pairs if pair[1] == first_beyond]
        return Page([pk for pk, _ in page_pairs], str(page_pairs[-1][1]))

    def _deliveries(self, messages: Sequence[int]) -> list[tuple[int, int]]:
        """The deliveries to send: (delivery, message), in the order of the messages."""

        def hot_ids() -> set[int]:
            return set(BizMsg.objects.filter(id__in=messages).values_list("id", flat=True))

        # A message that was brought back is in both stores: its hot deliveries count. The ids are
        # read again after the deliveries: the archiver or a restore may have moved a message
        # meanwhile, whose deliveries would be read from neither store.
        while True:
            hot = hot_ids()
            pairs = self._resent(stores.hot(), sorted(hot))
            if hot_ids() == hot:
                break
        with reading(stores.cold()):
            pairs += self._resent(stores.cold(), [pk for pk in messages if pk not in hot])
        return sorted(pairs, key=lambda pair: (pair[1], pair[0]))

    def _with_deliveries(self, store: Store, _values: Values, messages: Sequence[int]) -> set[int]:
        return {message_id for _pk, message_id in self._resent(store, messages)}

    def _resent(self, store: Store, messages: Sequence[int]) -> list[tuple[int, int]]:
        """The deliveries of these messages that are resent: (delivery, message)."""
        rows = store.deliveries.filter(msg_id__in=messages).order_by()
        if "subscription" in self._values:
            rows = rows.filter(biz_receive_id=self._values["subscription"])
        # A column instead of a WHERE: with the status in WHERE, MariaDB reads the index of statuses
        is_resent = ExpressionWrapper(self._condition(), BooleanField())
        columns = rows.values_list("id", "msg_id", is_resent)
        return [(pk, message_id) for pk, message_id, is_meant in columns if is_meant]

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
