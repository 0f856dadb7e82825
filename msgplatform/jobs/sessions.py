"""Sessions of console users that have expired: Django leaves their rows to somebody else."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from django.conf import settings

from msgplatform.core.daemons.timer import Every

EVERY_SECONDS = 3600.0


class ExpiredSessions:
    """Deletes them when it is time; its owner's loop asks as often as it likes."""

    def __init__(self) -> None:
        self._next = Every(EVERY_SECONDS)

    def turn_if_due(self) -> None:
        if self._next.take():
            engine: Any = import_module(settings.SESSION_ENGINE)
            engine.SessionStore.clear_expired()
