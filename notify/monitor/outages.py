"""What is known of a subscription that fails: for how long, with which answer, what waits, and when
it is tried next. For its alert and for `doctor`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.translation import gettext_noop as _

from msgplatform.core.connections import RedisError
from msgplatform.core.data.counting import capped
from msgplatform.core.durations import age
from msgplatform.core.lazy_text import lazy_message
from msgplatform.monitor.failure_store import latest_answer
from notify import presence
from notify.models import BizReceive, ReceiveMsg
from notify.monitor.counters import FLOW
from notify.monitor.failures import answer
from notify.presence import Live

MAX_DESCRIBED = 100  # more subscriptions fail by the same cause, or nobody reads their texts
MAX_COUNTED = 10_000  # of what waits for one
_LOOKED_AT = 20  # deliveries, for the last answer
_Status = ReceiveMsg.Status
_WAITING = f"status IN ({int(_Status.PENDING)}, {int(_Status.QUEUED)}) AND biz_receive_id = %s"


def describe(rows: Sequence[BizReceive], now: datetime) -> dict[int, str]:
    """A text for each of the first MAX_DESCRIBED of these failing subscriptions, by id. A bounded
    number of indexed reads for each."""
    rows = [row for row in rows if row.failing_since][:MAX_DESCRIBED]
    counts = capped("receive_msg", _WAITING, [[row.pk] for row in rows], MAX_COUNTED)
    states = _states()
    return {
        row.pk: _text(row, count, states.get(row.pk), now)
        for row, count in zip(rows, counts, strict=True)
    }


def _text(row: BizReceive, count: int, live: Live | None, now: datetime) -> str:
    assert row.failing_since  # noqa: S101 - `describe` has left out the others
    text = lazy_message(
        _("Has failed for %(age)s: %(answer)s, %(failures)d in a row."),
        age=age((now - row.failing_since).total_seconds()),
        answer=_last_answer(row.pk) or lazy_message(_("the last answer is not known")),
        failures=row.failures,
    )
    if count:
        since = _oldest(row.pk)
        text = lazy_message(
            _("%(text)s Deliveries that wait: %(count)s, the oldest for %(age)s."),
            text=text,
            count=f"{count:,}" if count < MAX_COUNTED else f"{count:,}+",
            age=age((now - since).total_seconds() if since else None),
        )
    if live and live.is_open:
        at = timezone.localtime(now + timedelta(seconds=live.retry_in))
        text = lazy_message(
            _("%(text)s Next probe at %(at)s."), text=text, at=at.strftime("%H:%M:%S")
        )
    return text


def _last_answer(subscription: int) -> str:
    """The last error of a delivery that will be tried again, else of a failure; '' without one."""
    rows = ReceiveMsg.objects.filter(status=_Status.PENDING, biz_receive_id=subscription)
    # What was tried last is due last; what waits behind an open breaker was not tried.
    last = rows.order_by("-status", "-biz_receive_id", "-next_at")
    tried = [
        (updated_at, http_status, error)
        for updated_at, http_status, error in last.values_list(
            "updated_at", "http_status", "error"
        )[:_LOOKED_AT]
        if http_status or error
    ]
    if tried:
        _at, http_status, error = max(tried)
        return answer(_Status.PENDING, http_status, error)
    return latest_answer(FLOW, subscription)


def _oldest(subscription: int) -> datetime | None:
    """When the first in line was accepted: ids grow with time, and so do times to try it first."""
    rows = ReceiveMsg.objects.filter(
        status__in=(_Status.PENDING, _Status.QUEUED), biz_receive_id=subscription
    )
    first = rows.order_by("status", "biz_receive_id", "next_at")
    return min(first.values_list("created_at", flat=True)[:_LOOKED_AT], default=None)


def _states() -> Mapping[int, Live]:
    try:
        return presence.read()
    except RedisError:
        return {}
