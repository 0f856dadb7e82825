"""Upkeep: work of `run_bulk` at times beside its jobs, such as deleting old rows.

A feature or a flow adds its own to `features.upkeep`.
"""

from collections.abc import Callable, Sequence
from typing import Any

from django.db.models import QuerySet

from msgplatform.core.daemons import bisect
from msgplatform.core.daemons.timer import Every
from msgplatform.core.data import transactions

EVERY_SECONDS = 3600.0
CHUNK = 1000  # rows in one DELETE


class Upkeep:
    """A task beside bulk jobs. Each process that runs bulk jobs makes one object."""

    def start(self) -> None:
        """Called before the first turn."""

    def turn(self) -> bool:
        """Do one bounded piece of the work that is due. True if there may be more."""
        return False

    def stop(self) -> None:
        """Called after the last turn."""


class DeletedRows(Upkeep):
    """Deletes old rows every EVERY_SECONDS, chunk by chunk. `old_rows` gives the rows to delete
    now; an index must find them."""

    def __init__(self, old_rows: Callable[[], QuerySet[Any]]) -> None:
        self._old_rows = old_rows
        self._next = Every(EVERY_SECONDS)

    def turn(self) -> bool:
        if not self._next.is_due:
            return False
        rows = self._old_rows()
        keys = list(rows.values_list("pk", flat=True)[:CHUNK])
        model = rows.model

        def delete(part: Sequence[Any]) -> Sequence[Any]:
            transactions.retrying(model._default_manager.filter(pk__in=part).delete)
            return part

        if len(keys) < CHUNK:  # before `bisect` may raise: an error is not repeated at once
            self._next.restart()
        bisect.leave_refused(keys, delete, table=model._meta.db_table)
        return len(keys) == CHUNK
