"""Reasons for the state of a delivery, or for a message without recipients, as sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import msgspec
from django.urls import reverse
from django.utils.translation import gettext as _, ngettext

from msgplatform.core.connections import RedisError
from msgplatform.core.daemons import heartbeats
from msgplatform.core.data import sql
from msgplatform.core.flows.page import PageLink, Value
from msgplatform.models import Biz
from msgplatform.monitor.failure_groups import answer_title
from notify import presence
from notify.maker import ending, expiry
from notify.messages.states import Status, answer, local
from notify.models import BizMsg, BizReceive, ReceiveMsg

MAX_AHEAD = 1000  # deliveries ahead that are counted
_MAX_AHEAD_CARDS = 5  # cards that count them, each with a query
_MAX_COUNTED = 1000  # subscriptions of a system
_SubscriptionStatus = BizReceive.Status


class Circumstances(msgspec.Struct, frozen=True):
    """The state of subscriptions and their lanes on which deliveries depend, read once for a page.

    A deleted subscription is not among `subscriptions`. `lanes` is None while Redis is unavailable.
    `ahead`: for a few due deliveries, the number of deliveries that are due before each.
    """

    subscriptions: dict[int, BizReceive]
    lanes: dict[int, presence.LaneState] | None
    ahead: dict[int, int]
    now: datetime

    @classmethod
    def of(cls, deliveries: Iterable[Any]) -> Circumstances:
        rows_of_page = list(deliveries)
        ids = {row.biz_receive_id for row in rows_of_page}
        subscriptions = {row.pk: row for row in BizReceive.named_rows().filter(id__in=ids)}
        open_rows = [row for row in rows_of_page if row.status in ReceiveMsg.WAITING]
        lanes = presence.read_if_available() if open_rows else {}
        now = sql.now()
        due = [row for row in open_rows if row.status == Status.PENDING and row.next_at <= now]
        ahead = {row.pk: _ahead(row) for row in due[:_MAX_AHEAD_CARDS]}
        return cls(subscriptions, lanes, ahead, now)

    def why(self, delivery: Any) -> str:
        """The reason for the state of a delivery, a sentence; '' for a state that needs none."""
        status = Status(delivery.status)
        if status == Status.PENDING:
            return self._explain_wait(delivery)
        if status == Status.QUEUED and self._is_listened(delivery):
            text = _("A listener has it; without a result it is given out again at %s.")
            return text % local(delivery.next_at)
        if status == Status.QUEUED:
            text = _(
                "It is queued, or in a sender's hands; without an answer it is queued again at %s."
            )
            return self._behind_breaker(delivery) or text % local(delivery.next_at)
        if status == Status.HELD:
            return self._explain_hold(delivery)
        if status == Status.EXHAUSTED:
            if delivery.error == expiry.ERROR:
                return _("Given up: its breaker stayed open for as long as all attempts would have "
                         "taken, and for at least NOTIFY_BREAKER_KEEP_HOURS.")  # fmt: skip
            last_answer = answer(delivery) or _("no answer")
            parameters = {"count": delivery.send_times, "answer": last_answer}
            return _("No attempt is left after %(count)d failed; the last: %(answer)s") % parameters
        if status == Status.POISON:
            text = _("It cannot be sent, which is the platform's own fault: %s")
            return text % answer_title(str(delivery.error))
        if status == Status.SKIPPED and delivery.error == expiry.UNFETCHED:
            return _("Nobody listened for its consumer for three days: it is not kept any longer.")
        if ending.is_erased(status, delivery.error):
            return _("It was ended by the erasure of a person's data, and is not sent again.")
        if status == Status.SKIPPED:
            return _("Its subscription was discarded, or resumed without what was held.")
        return ""

    def _is_listened(self, delivery: Any) -> bool:
        subscription = self.subscriptions.get(delivery.biz_receive_id)
        return subscription is not None and subscription.receive.is_listened

    def _explain_wait(self, delivery: Any) -> str:
        subscription = self.subscriptions.get(delivery.biz_receive_id)
        if subscription is None:
            return _("Its subscription was deleted.")
        if subscription.status == _SubscriptionStatus.DISCARDED:
            return _("Its subscription is discarded: it will be skipped.")
        if subscription.status in BizReceive.HOLDING:
            return self._explain_hold(delivery)
        if breaker := self._behind_breaker(delivery):
            return breaker
        if delivery.next_at > self.now:
            return _("The last attempt failed; it waits for the next one.")
        if self._is_listened(delivery):
            return _("It waits for a listener: msgp listen on an engineer's machine fetches it.")
        ahead = self.ahead.get(delivery.pk)
        if self.lanes is None or ahead is None:
            return _("It waits for its turn.")
        if ahead >= MAX_AHEAD:
            return _("It waits for its turn: %d deliveries or more go first.") % MAX_AHEAD
        text = ngettext("It waits for its turn: %d delivery goes first.",
                        "It waits for its turn: %d deliveries go first.", ahead)  # fmt: skip
        return text % ahead

    def _behind_breaker(self, delivery: Any) -> str:
        """The sentence about an open breaker; '' while the breaker is closed or not known."""
        lane = (self.lanes or {}).get(delivery.biz_receive_id)
        if lane is None or not lane.is_open:
            return ""
        since = local(self.now - timedelta(seconds=lane.open_for))
        probe = local(self.now + timedelta(seconds=lane.retry_in))
        sentence = _(
            "Not tried: its breaker has been open since %(since)s; the next probe may go at %(at)s."
        )
        return sentence % {"since": since, "at": probe}

    def _explain_hold(self, delivery: Any) -> str:
        subscription = self.subscriptions.get(delivery.biz_receive_id)
        if subscription is None:
            return _("Its subscription was deleted.")
        if subscription.status == _SubscriptionStatus.DISABLED:
            why = subscription.why_disabled or _("too many failures")
            return _("Held: the platform disabled its subscription: %s") % why
        if subscription.status == _SubscriptionStatus.PAUSED:
            return _("Held: its subscription is paused.")
        return _("Held; its subscription was resumed, so it goes on soon.")


def _ahead(delivery: ReceiveMsg) -> int:
    """The number of the subscription's deliveries that are due before this one."""
    rows = ReceiveMsg.objects.filter(
        status=Status.PENDING,
        biz_receive_id=delivery.biz_receive_id,
        next_at__lt=delivery.next_at,
    )
    return rows.order_by()[:MAX_AHEAD].count()


def no_recipient_reasons(message: Any, biz: Biz | None) -> Iterator[Value]:
    """The reasons why the message has no delivery: sentences, and links to what helps."""
    if message.state == BizMsg.State.ACCEPTED:
        yield _("It waits for a maker, which makes a delivery for each subscription that wants it.")
        try:
            if not any(beat.role == "maker" for beat in heartbeats.alive()):
                yield _("No maker runs: start run_maker.")
        except RedisError:
            yield _("Redis is unavailable: whether a maker runs is not known.")
        return
    names = {"type": message.event_type, "system": biz or message.biz_id}
    if message.channel:
        names["channel"] = message.channel
        text = _("When it was accepted, nobody subscribed to %(type)s of %(system)s in the channel "
                 "%(channel)s.")  # fmt: skip
    else:
        text = _("When it was accepted, nobody subscribed to %(type)s of %(system)s.")
    yield text % names
    other_count = BizReceive.objects.filter(biz_id=message.biz_id).order_by()[:_MAX_COUNTED].count()
    if other_count:
        text = ngettext(
            "The system has %d subscription: of other types or channels, newer, or discarded.",
            "The system has %d subscriptions: of other types or channels, newer, or discarded.",
            other_count,
        )
        yield text % other_count
    query = urlencode({"biz": message.biz_id, "event_types": message.event_type})
    yield PageLink(
        _("Add a subscription"),
        f"{reverse('admin:notify_bizreceive_add')}?{query}",
        "notify.add_bizreceive",
    )
    if not other_count:
        return
    # A backfill adds messages that were accepted before the subscription was made.
    query = urlencode(
        {
            "action": "backfill", "biz": message.biz_id, "event_type": message.event_type,
            "since": message.created_at.isoformat(),
        }
    )  # fmt: skip
    yield PageLink(
        _("Make deliveries for subscriptions that were made later"),
        f"{reverse('console:bulk-flow', args=['notify'])}?{query}",
        "msgplatform.add_bulkjob notify.change_receivemsg",
    )
