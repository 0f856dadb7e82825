"""Delete rows that are older than CRM_KEEP_DAYS: runs, operations with their items, the exception
log, and entries of the recovery log that are not open.

A run that may still read and an operation that has not ended stay, unless their policy is gone.
Records stay for ever: they hold the state of each CRM.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.conf import settings
from django.db import DatabaseError
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from crmsync.models import ExceptionEntry, Item, Lead, Operation, Policy, RecoveryEntry, Run
from crmsync.models.sources import MAX_RUN
from msgplatform.core import logging
from msgplatform.core.archive import kept
from msgplatform.core.archive.description import DAY, Archive, Table
from msgplatform.core.archive.retention import EVERY_SECONDS, Retention
from msgplatform.core.daemons.timer import Every
from msgplatform.core.data import ids, sql, transactions
from msgplatform.core.errors import Temporary

log = logging.get(__name__)

CHUNK = 500  # entries of the recovery log that are looked at, and deleted, at a time
_State = RecoveryEntry.State
_HANDLED = (_State.RETRIED, _State.SOLVED, _State.DISMISSED)


def keep() -> float | None:
    """Seconds for which rows are kept; None: for ever."""
    return float(settings.CRM_KEEP_DAYS) * DAY or None


def reading_runs(now: datetime) -> Q:
    """Runs that a poller may still read; it does not continue older runs."""
    young = Q(id__gte=ids.first_id_at(now - MAX_RUN))
    return young & Q(state=Run.State.READING, policy_id__in=_policies())


def open_operations(now: datetime) -> Q:
    return Q(end_at__isnull=True, policy_id__in=_policies())


def _policies() -> list[int]:
    # A list, not a subquery: months are looked at while their table is locked, and MySQL then lets
    # this connection read no other table.
    return list(Policy.objects.order_by("id").values_list("id", flat=True))


ARCHIVE = Archive(
    "crmsync",
    (
        Table(Run, not_final=reading_runs),
        Table(Operation, (Table(Item, of="operation_id"),), not_final=open_operations),
        Table(ExceptionEntry),
    ),
    keep,
)


def kept_data() -> Sequence[kept.KeptData]:
    """The rows of the page of retention."""
    runs, operations, exceptions = ARCHIVE.tables
    return (
        kept.of_table(_("runs"), runs, keep, "CRM_KEEP_DAYS"),
        kept.of_table(_("operations and outcomes"), operations, keep, "CRM_KEEP_DAYS"),
        kept.of_table(_("exception log"), exceptions, keep, "CRM_KEEP_DAYS"),
        kept.of_ids(_("leads, and what each CRM holds of them"), Lead, kept.for_ever),
    )


class Housekeeping:
    """Creates partitions ahead and deletes old rows, a bounded amount in each turn. Several
    processes may call it, as often as they like."""

    def __init__(self) -> None:
        self._archive, self._next = Retention(ARCHIVE), Every(EVERY_SECONDS)
        self._looked = dict.fromkeys(_HANDLED, 0)  # the last id that was looked at

    def turn_if_due(self) -> bool:
        """True while there is more to delete. An error is logged and waits for the next time: it
        must not keep the owner from its work."""
        if not self._next.is_due:
            return False
        more = False
        for step in (self._archive.turn, self._delete_handled):
            try:
                more = step() or more
            except (DatabaseError, Temporary) as error:
                log.warning("sync_housekeeping_failed", error=str(error)[:300])
        if not more:
            self._next.restart()
        return more

    def _delete_handled(self) -> bool:
        """Delete a page of the recovery log; True while there is more."""
        if not (age := keep()):
            return False
        before = sql.now() - timedelta(seconds=age)
        for state in _HANDLED:
            # Ids follow the time of creation: a page without an old entry is the last.
            rows = sql.of_one(RecoveryEntry.objects.all(), "state", state)
            rows = rows.filter(id__gt=self._looked[state]).order_by("state", "id")
            page = list(rows.values_list("id", "created_at", "handled_at")[:CHUNK])
            old = [pk for pk, created_at, handled_at in page if (handled_at or created_at) < before]
            if old:
                entries = RecoveryEntry.objects.filter(id__in=old, state=state)
                count = transactions.retrying(entries.delete)[0]
                log.info("recovery_entries_deleted", rows=count)
            is_last = len(page) < CHUNK or all(created_at >= before for _, created_at, _ in page)
            self._looked[state] = 0 if is_last else page[-1][0]
            if not is_last:
                return True
        return False
