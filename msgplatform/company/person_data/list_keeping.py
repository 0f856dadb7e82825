"""Keeps the list of erasures outside of the database equal to the table: in `run_bulk`, and in each
web process of a machine that has the list, since erasures that are asked for there are in it."""

from __future__ import annotations

from msgplatform.company.person_data import erasure_alert, erasure_list, erasures
from msgplatform.company.person_data.models import Erasure
from msgplatform.core.daemons.thread_loop import ThreadLoop

LIST_EVERY_SECONDS = 60.0


class ListKeeper:
    """`keep` may be called by several processes of a machine."""

    def __init__(self) -> None:
        # True if the alert about the list may be open; an earlier process may have raised it.
        self._has_list_alert = True

    def keep(self) -> None:
        """Read what only the file has, write what only the table has, and forget identifiers that
        were kept long enough."""
        try:
            if erasure_list.has_file():
                erasure_list.read_into_database()
            since = erasures.kept_since()
            old = Erasure.objects.filter(created_at__lt=since).exclude(state__in=Erasure.OPEN)
            old_rows = [row for row in old if row.identifiers]
            kept = list(Erasure.objects.filter(created_at__gte=since))
            kept_rows = [row for row in kept if row.identifiers]
            cancelled_keys = {row.key for row in kept if row.state == Erasure.State.CANCELLED}
            # Another machine may have removed their identifiers from the table and its own file.
            keys = erasure_list.keys() if erasure_list.has_file() else ()
            listed = Erasure.objects.filter(key__in=keys)
            ended_keys = {row.key for row in listed if not row.identifiers} - cancelled_keys
            removed_keys = ended_keys | {row.key for row in old_rows}
            if kept_rows or cancelled_keys or removed_keys:
                erasure_list.synchronise(kept_rows, cancelled_keys, removed_keys)
            for row in old_rows:
                row.identifiers = {}
                row.save(update_fields=["identifiers"])
            if self._has_list_alert:
                erasure_alert.resolve_for_list()
                self._has_list_alert = False
        except OSError as error:
            erasure_alert.raise_for_list(error)
            self._has_list_alert = True


def keep_in_thread() -> None:
    """Keep the list of this machine, if it has one, for as long as the process lives."""
    keeper = ListKeeper()

    def turn() -> None:
        if erasure_list.has_file():
            keeper.keep()

    ThreadLoop("erasure-list", turn, every=LIST_EVERY_SECONDS).start()
