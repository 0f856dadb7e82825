"""Deliveries that nobody can send: set aside as poison, with an alert, so that nobody waits."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction
from django.utils.translation import gettext_noop as _

from msgplatform.core import alerts
from msgplatform.core.data import sql, transactions
from msgplatform.core.lazy_text import lazy_message
from notify.maker import ending
from notify.models import ReceiveMsg
from notify.monitor import failures

_Status = ReceiveMsg.Status
_WAITING = (int(_Status.PENDING), int(_Status.QUEUED))
GONE, UNREADABLE = "message is gone", "payload is not UTF-8"
_TITLES = {
    GONE: _("The message of delivery %(id)s is gone"),
    UNREADABLE: _("The payload of delivery %(id)s is not UTF-8"),
}


def set_aside(
    subscription: int, delivery_ids: Sequence[int], error: str, claim: str | None = None
) -> None:
    """Deliveries of one subscription. They must be due, or carry this `claim`."""
    if not delivery_ids:
        return
    now = sql.now()

    def once() -> list[int]:
        with transaction.atomic():
            ended = ending.end(delivery_ids, _WAITING, now, _Status.POISON, error, claim)
            failures.ended(_Status.POISON, subscription, ended, error, now)
        return ended

    if ended := transactions.retrying(once):
        words = lazy_message(
            _("Deliveries of subscription %(id)d that cannot be sent: %(count)d."),
            id=subscription,
            count=len(ended),
        )
        key = f"notify.{'gone' if error == GONE else 'unreadable'}:{subscription}"
        title = lazy_message(_TITLES[error], id=str(ended[0]))
        alerts.raise_alert("notify.poison", title, words, key=key)
