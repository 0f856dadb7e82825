"""Archiver: moves what is final to the archive, and deletes what was kept long enough.

Several may run: rows are locked while they move, so the second finds them gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from msgplatform.core import alerts
from msgplatform.core.archive.copying import NotVerified
from msgplatform.core.archive.retention import Retention
from msgplatform.core.archive.walk import Walk, looks
from msgplatform.core.daemons import bisect
from msgplatform.core.daemons.away import AWAY
from msgplatform.core.daemons.daemon import Worker
from msgplatform.core.daemons.timer import Every
from msgplatform.core.data import sql
from notify.archive import ages, restored, stores
from notify.archive.due import Due, candidates, chunks, due, movable
from notify.archive.move import move
from notify.archive.retention import ARCHIVE, KEYS

# Between two looks at nothing; days are what is measured here.
ROUND_SECONDS = 20.0
# For a chunk's way into the archive, however slow that is; a frozen archiver keeps it so long, but
# nobody else wants what is final.
_COPY_SECONDS = 120


class Archiver(Worker):
    role = "archiver"

    def __init__(self) -> None:
        super().__init__()
        self._walk: Walk | None = None
        self._retention, self._keys = Retention(ARCHIVE), Retention(KEYS)
        self._next_round = Every(ROUND_SECONDS)

    def start(self) -> None:
        connections.close_all()
        connection_created.connect(_wait_for_the_archive, dispatch_uid="archiver")

    def turn(self) -> bool:
        """Look at one page of messages, or purge; true when there may be more to do."""
        if not self._next_round.is_due:
            return False
        now = sql.now()
        self._retention.prepare(now)
        self._walk = self._walk or walk(now)
        page = self._walk.page(now) or restored.page(now)
        self.heartbeat.lag = self._walk.lag(now)
        if not page:
            return self._purge(now)
        try:
            self._archive(page, due(now))
        except AWAY:
            self._walk = None  # this page was not moved: look at everything again
            raise
        return True

    def _archive(self, page: Sequence[int], due: Due) -> None:
        for chunk in chunks(movable(page, due), stores.hot()):
            bisect.isolate(chunk, lambda some: self._move(some, due), self._set_aside, _is_away)

    def _move(self, chunk: Sequence[int], due: Due) -> Sequence[int]:
        self.heartbeat.done += move(chunk, due)
        return chunk

    def _set_aside(self, message_id: int, error: Exception) -> alerts.AlertEvent:
        """It stays where it is until its next look."""
        self.heartbeat.failed += 1
        return alerts.AlertEvent(
            "notify.archive",
            f"Message {message_id} could not be moved to the archive",
            str(error),
            key=f"notify.archive:{message_id}",
        )

    def _purge(self, now: datetime) -> bool:
        """Retention, after all is archived: an archived message keeps the key that is purged here.
        True while there may be more to delete."""
        if self._retention.purge(now) or self._keys.purge(now):
            return True
        self._next_round.restart()
        return False


def walk(now: datetime) -> Walk:
    """Messages are looked at when they may move if all went well, and if a delivery failed."""
    return Walk(now, looks((ages.keep(), ages.keep_failed())), candidates)


def _wait_for_the_archive(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    """The transaction that holds the messages is idle while another server copies them."""
    if connection.vendor == "mysql" and connection.mysql_is_mariadb:  # type: ignore[attr-defined]  # the vendor's
        with connection.cursor() as cursor:
            cursor.execute("SET idle_transaction_timeout = %s", [_COPY_SECONDS])


def _is_away(error: Exception) -> bool:
    """What cannot be verified looks like a server that is away, but is one message's fault."""
    return isinstance(error, AWAY) and not isinstance(error, NotVerified)
