"""Deliver now: a person says that a consumer works again, and its subscription does not wait.

With an open breaker the next probe is due at once; when it succeeds, everything behind it follows.
Deliveries that wait for the time of their next attempt are due at once too.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models.functions import Now
from django.utils.translation import gettext_noop as _

from msgplatform.core.data import claims
from msgplatform.core.errors import NotNow
from msgplatform.core.lazy_text import lazy_message
from notify import presence, signals
from notify.models import BizReceive, ReceiveMsg

# Deliveries whose next attempt is brought forward; the others keep their time.
MAX_MADE_DUE = 5_000
_PAGE = claims.CHUNK
_Status = BizReceive.Status


@dataclass(frozen=True)
class Started:
    """`is_probe`: the breaker is open, and one delivery is tried before the others. `made_due`
    deliveries were waiting for a later time; with `has_more` some still are."""

    is_probe: bool
    made_due: int
    has_more: bool


def start(row: BizReceive) -> Started:
    """Raises NotNow for a subscription that delivers nothing at present, and RedisError."""
    if row.status not in (_Status.NORMAL, _Status.SKIPPING):
        status = _Status(row.status).label
        text = _("The subscription delivers nothing now, its status is: %(status)s. Resume it.")
        raise NotNow(lazy_message(text, status=status))
    is_probe = probe(row)
    made_due, has_more = _make_due(row)
    signals.MAKER.send()
    return Started(is_probe, made_due, has_more)


def probe(row: BizReceive) -> bool:
    """Its next probe goes at once; True if its breaker is open. Raises RedisError."""
    state = presence.read().get(row.pk)
    if state is None or not state.is_open:
        return False
    presence.request_probe(row.pk)
    signals.MAKER.send()
    return True


def _make_due(row: BizReceive) -> tuple[int, bool]:
    """How many deliveries were brought forward, and whether there are more."""
    later = ReceiveMsg.objects.filter(
        status=ReceiveMsg.Status.PENDING, biz_receive_id=row.pk, next_at__gt=Now()
    )
    made_due = 0
    while made_due < MAX_MADE_DUE:
        ids = list(later.order_by("next_at").values_list("id", flat=True)[:_PAGE])
        values = {"next_at": Now(), "updated_at": Now()}
        made_due += claims.update_by_key(later.filter(id__in=ids), values) if ids else 0
        if len(ids) < _PAGE:
            return made_due, False
    return made_due, later.exists()
