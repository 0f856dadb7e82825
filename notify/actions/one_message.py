"""One message sent again from its page: to one subscription, or to all that it did not reach."""

from __future__ import annotations

from django.utils.translation import gettext as _

from msgplatform.api.filters import number
from msgplatform.core.data import sql
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows import Resent
from notify.actions.send_again import FAILED, again
from notify.archive import stores
from notify.archive.stores import reading
from notify.models import ReceiveMsg

_Status = ReceiveMsg.Status
# One that somebody names may be delivered, or wait for its next attempt.
_NAMED: tuple[int, ...] = (*FAILED.values(), _Status.DELIVERED, _Status.PENDING)


def resend(id: str, recipient: str, _by: str) -> Resent:
    """Archived messages are brought back. Raises InvalidInput when there is no such message or
    delivery, Unavailable when the archive would be needed and cannot be read."""
    message_id = number(id)
    deliveries = _deliveries(message_id)
    if not deliveries:
        raise InvalidInput(_("there is no such message"), "id")
    if recipient:
        chosen = number(recipient, "recipient")
        if chosen not in deliveries:
            raise InvalidInput(_("there is no such delivery"), "recipient")
        wanted, statuses = [chosen], _NAMED
    else:
        statuses = tuple(map(int, FAILED.values()))
        wanted = [pk for pk, status in deliveries.items() if status in statuses]
    count = again(wanted, statuses, sql.now())
    return Resent(count, len(wanted) - count)


def _deliveries(message_id: int) -> dict[int, int]:
    """Delivery → status, where the message is; the hot ones count."""
    for place in (stores.hot(), stores.cold()):
        with reading(place):
            rows = place.deliveries_of([message_id]).order_by("id")
            if found := dict(rows.values_list("id", "status")):
                return found
    return {}
