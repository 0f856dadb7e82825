"""Why a delivery is where it is, in a sentence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils import formats, timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from msgplatform.core.connections import RedisError
from msgplatform.core.data import sql
from notify import presence
from notify.maker import expiry
from notify.models import BizReceive, ReceiveMsg
from notify.presence import LaneState

# Deliveries before one are counted up to this, and only for the first few: each is a query.
AHEAD_MOST = 1000
_AHEAD_ASKED = 5
_Status = ReceiveMsg.Status
_Subscribed = BizReceive.Status
# The secret, and headers that may hold one, are not read: a page has no need of them.
_SECRETS = ("receive__secret", "receive__previous_secret", "receive__headers")


@dataclass(frozen=True)
class Circumstances:
    """What decides when deliveries go out, read once for a page.

    A deleted subscription is not among `subscriptions`. `lanes` is None while Redis is unavailable.
    `ahead` says how many deliveries are due before some of those that are due themselves.
    """

    subscriptions: dict[int, BizReceive]
    lanes: dict[int, LaneState] | None
    ahead: dict[int, int]
    now: datetime

    @classmethod
    def of(cls, deliveries: Iterable[Any]) -> Circumstances:
        found = list(deliveries)
        rows = BizReceive.objects.filter(id__in={row.biz_receive_id for row in found})
        subscriptions = {
            row.pk: row for row in rows.select_related("biz", "receive").defer(*_SECRETS)
        }
        open_ones = [row for row in found if row.status in (_Status.PENDING, _Status.QUEUED)]
        try:
            lanes = presence.read() if open_ones else {}
        except RedisError:
            lanes = None
        now = sql.now()
        due = [row for row in open_ones if row.status == _Status.PENDING and row.next_at <= now]
        return cls(subscriptions, lanes, {row.pk: _ahead(row) for row in due[:_AHEAD_ASKED]}, now)

    def why(self, delivery: Any) -> str:
        """A sentence; '' when the state says it all."""
        status = _Status(delivery.status)
        if status == _Status.PENDING:
            return self._pending(delivery)
        if status == _Status.QUEUED:
            text = _(
                "It is queued, or in a sender's hands; without an answer it is queued again at %s."
            )
            return self._behind_breaker(delivery) or text % local(delivery.next_at)
        if status == _Status.HELD:
            return self._held(delivery)
        if status == _Status.EXHAUSTED:
            return _exhausted(delivery)
        if status == _Status.POISON:
            text = _("It cannot be sent, which is the platform's own fault: %s")
            return text % str(delivery.error)
        if status == _Status.SKIPPED:
            return _("Its subscription was discarded, or resumed without what was held.")
        return ""

    def _pending(self, delivery: Any) -> str:
        subscription = self.subscriptions.get(delivery.biz_receive_id)
        if subscription is None:
            return _("Its subscription was deleted.")
        if subscription.status == _Subscribed.DISCARDED:
            return _("Its subscription is discarded: it will be skipped.")
        if subscription.status in (_Subscribed.PAUSED, _Subscribed.DISABLED):
            return self._held(delivery)
        if breaker := self._behind_breaker(delivery):
            return breaker
        if delivery.next_at > self.now:
            return _("The last attempt failed; it waits for the next one.")
        if self.lanes is None:
            return _("It waits for its turn.")
        ahead = self.ahead.get(delivery.pk)
        if ahead is None:
            return _("It waits for its turn.")
        if ahead >= AHEAD_MOST:
            return _("It waits for its turn: %d or more before it.") % AHEAD_MOST
        text = ngettext(
            "It waits for its turn: %d before it.", "It waits for its turn: %d before it.", ahead
        )  # fmt: skip
        return text % ahead

    def _behind_breaker(self, delivery: Any) -> str:
        """'' while the breaker is closed, or nobody can say."""
        live = (self.lanes or {}).get(delivery.biz_receive_id)
        if live is None or not live.is_open:
            return ""
        since = local(self.now - timedelta(seconds=live.open_for))
        probe = local(self.now + timedelta(seconds=live.retry_in))
        sentence = _(
            "Not tried: its breaker has been open since %(since)s; the next probe may go at %(at)s."
        )
        return sentence % {"since": since, "at": probe}

    def _held(self, delivery: Any) -> str:
        subscription = self.subscriptions.get(delivery.biz_receive_id)
        if subscription is None:
            return _("Its subscription was deleted.")
        if subscription.status == _Subscribed.DISABLED:
            why = subscription.why_disabled or _("too many failures")
            return _("Held: the platform disabled its subscription: %s") % why
        if subscription.status == _Subscribed.PAUSED:
            return _("Held: its subscription is paused.")
        return _("Held; its subscription was resumed, so it goes on soon.")


def local(moment: datetime) -> str:
    """A time as the console writes it, in the zone in which the person sees times."""
    shown: str = formats.date_format(timezone.localtime(moment), "Y-m-d H:i:s")
    return shown


def _exhausted(delivery: Any) -> str:
    if delivery.error == expiry.ERROR:
        return _("Given up: its breaker stayed open for as long as all attempts would have taken.")
    last = f"HTTP {delivery.http_status}" if delivery.http_status else delivery.error
    said = {"count": delivery.send_times, "answer": last or _("no answer")}
    return _("No attempt is left after %(count)d failed; the last: %(answer)s") % said


def _ahead(delivery: ReceiveMsg) -> int:
    """How many deliveries of its subscription are due before it, by the index of what is due."""
    rows = ReceiveMsg.objects.filter(
        status=_Status.PENDING,
        biz_receive_id=delivery.biz_receive_id,
        next_at__lt=delivery.next_at,
    )
    return rows.order_by()[:AHEAD_MOST].count()
