"""Keeps a directory fresh from a thread of its own: a database that hangs holds up no message."""

from __future__ import annotations

import threading

from django.db import close_old_connections

from gateway.directory import Directory
from msgplatform.core import logging
from msgplatform.core.daemon import AWAY

log = logging.get(__name__)
_LOOK_SECONDS = 0.5


class Refresher:
    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="refresher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Not joined: it may hang with the database, and owns nothing that must be given back."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.wait(_LOOK_SECONDS):
            try:
                close_old_connections()
                self._directory.refresh()
            except AWAY as error:
                log.warning("directory_waiting", why=str(error)[:200])
            except Exception:
                log.exception("directory_failed")
        close_old_connections()
