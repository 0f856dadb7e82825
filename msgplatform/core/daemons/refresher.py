"""Keeps what a daemon knows fresh, from a thread of its own: a database that hangs stops nobody."""

from __future__ import annotations

import threading
from collections.abc import Callable

from django.db import close_old_connections

from msgplatform.core import logging
from msgplatform.core.daemons.daemon import AWAY

log = logging.get(__name__)
_LOOK_SECONDS = 0.5


class Refresher:
    """Calls `refresh` at once and then all the time; that knows itself whether it is due."""

    def __init__(self, refresh: Callable[[], None]) -> None:
        self._refresh = refresh
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="refresher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Not joined: it may hang with the database, and owns nothing that must be given back."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                close_old_connections()
                self._refresh()
            except AWAY as error:
                log.warning("refresh_waits", why=str(error)[:200])
            except Exception:
                log.exception("refresh_failed")
            self._stopping.wait(_LOOK_SECONDS)
        close_old_connections()
