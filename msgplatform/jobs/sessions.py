"""Sessions of console users that have expired: Django leaves their rows to somebody else."""

from __future__ import annotations

from django.contrib.sessions.models import Session
from django.utils import timezone

from msgplatform.core.daemons.timer import Every
from msgplatform.core.data import transactions

EVERY_SECONDS = 3600.0
_CHUNK = 1000  # rows in one DELETE


class ExpiredSessions:
    """Deletes them when it is time; its owner's loop asks as often as it likes."""

    def __init__(self) -> None:
        self._next = Every(EVERY_SECONDS)

    def turn_if_due(self) -> None:
        """Delete one chunk; the next turn goes on while there may be more."""
        if not self._next.is_due:
            return
        sessions = Session.objects.filter(expire_date__lt=timezone.now()).order_by("expire_date")
        keys = list(sessions.values_list("session_key", flat=True)[:_CHUNK])
        if keys:
            transactions.retrying(Session.objects.filter(session_key__in=keys).delete)
        if len(keys) < _CHUNK:
            self._next.restart()
