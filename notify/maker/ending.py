"""Ends waiting deliveries without an attempt: the caller's, or deliveries that cannot be sent."""

from collections.abc import Collection, Sequence
from datetime import datetime

from django.db import transaction
from django.db.models.functions import Now
from django.utils.translation import gettext_noop as _

from msgplatform.core import alerts, logging
from msgplatform.core.data import claims, sql, transactions
from msgplatform.core.lazy_text import lazy_message
from notify.models import BizMsg, ReceiveMsg
from notify.monitor import counters, failures

log = logging.get(__name__)

_Status = ReceiveMsg.Status
GONE, UNREADABLE = "message is gone", "payload is not UTF-8"
_event_types = counters.CatalogueSubjects()
# The error of a waiting delivery that was skipped because a person's data was erased.
ERASED = "erased"
_TITLES = {
    GONE: _("The message of delivery %(id)s is gone"),
    UNREADABLE: _("The payload of delivery %(id)s is not UTF-8"),
}


def end(
    delivery_ids: Sequence[int],
    statuses: Collection[int],
    due_before: datetime,
    status: int,
    error: str,
    claim: str | None = None,
) -> list[int]:
    """Give up to claims.CHUNK deliveries this final status, in the caller's transaction; returns
    the ids of the changed deliveries.

    A delivery changes if it still has one of `statuses`, and carries the `claim`, or without a
    `claim` was due by `due_before`.
    """
    # Rows are locked first, so that counters name the rows that change. WHERE has the id alone:
    # with the status MariaDB might lock rows by another index.
    rows = ReceiveMsg.objects.select_for_update().filter(id__in=delivery_ids).order_by("id")
    ended_ids = [
        pk
        for pk, current, next_at, holder in rows.values_list(
            "id", "status", "next_at", "claimed_by"
        )
        if current in statuses and (next_at <= due_before if claim is None else holder == claim)
    ]
    if ended_ids:
        values = {"status": status, "error": error, "claimed_by": "", "updated_at": Now()}
        claims.update_by_key(ReceiveMsg.objects.filter(id__in=ended_ids), values)
    return ended_ids


def is_erased(status: int, error: str) -> bool:
    """True if an erasure ended the delivery. It is never resent, and its fields are `[erased]`."""
    return status == _Status.SKIPPED and error == ERASED


def set_aside(
    subscription: int, delivery_ids: Sequence[int], error: str, claim: str | None = None
) -> None:
    """End deliveries of one subscription that cannot be sent as poison, and raise an alert. The
    deliveries must be due, or carry this `claim`."""
    if not delivery_ids:
        return
    _event_types.refresh()
    now = sql.now()

    def once() -> list[int]:
        with transaction.atomic():
            ended_ids = end(delivery_ids, ReceiveMsg.WAITING, now, _Status.POISON, error, claim)
            failures.count_ended(_Status.POISON, subscription, ended_ids, error, now, _event_types)
        return ended_ids

    if ended_ids := transactions.retrying(once):
        text = lazy_message(
            "Deliveries of subscription %(id)d that cannot be sent: %(count)d.",
            id=subscription,
            count=len(ended_ids),
        )
        key = f"notify.{'gone' if error == GONE else 'unreadable'}:{subscription}"
        title = lazy_message(_TITLES[error], id=str(ended_ids[0]))
        alerts.raise_alert("notify.poison", title, text, key=key)


def set_unsplittable_aside(message_id: int, error: Exception) -> None:
    """Mark a message that the database refuses to split as split, without deliveries, and raise an
    alert that names it. A message that another maker has split or set aside stays as it is."""
    waiting_rows = BizMsg.objects.filter(pk=message_id, state=BizMsg.State.ACCEPTED)
    if not waiting_rows.update(state=BizMsg.State.DISTRIBUTED):
        return
    log.error("message_not_split", id=message_id, exc_info=error)
    alerts.raise_alert(
        "notify.poison",
        lazy_message("Message %(id)s could not be split", id=str(message_id)),
        lazy_message(
            "%(error)s. It has no deliveries, and other messages go on. When the cause is "
            "mended, make its deliveries on its page.",
            error=f"{type(error).__name__}: {error}"[:500],
        ),
        key=f"notify.unsplittable:{message_id}",
    )
