"""Data pump: moves what is finished from Redis into the archive, then deletes its keys.

Rows are written before keys are deleted, and by id, so that a pump that is killed in between writes
the same rows again.
"""

from __future__ import annotations

from gateway import archive, unmatched
from gateway.lifecycle import keys, mo_store, store
from msgplatform.core import logging
from msgplatform.core.daemon import Worker
from msgplatform.core.failpoints import failpoint

log = logging.get(__name__)

BATCH = 500
# A killed pump's ids come back after this long.
LEASE_SECONDS = 60.0


class Pump(Worker):
    role = "data_pump"

    def turn(self) -> bool:
        """Archive one batch of each kind; true when there was any."""
        done = self._messages() + self._mos() + unmatched.settle(BATCH)
        self.heartbeat.done += done
        return done > 0

    def _messages(self) -> int:
        ids = store.take(keys.LIST_FINISH, keys.FINISHING, BATCH, LEASE_SECONDS)
        if not ids:
            return 0
        found = store.read(ids)
        archive.write_messages(found)
        failpoint("pump_after_commit_before_forget")
        store.forget({message.mt.id: message.final for message in found})
        store.drop(keys.FINISHING, list(set(ids) - {message.mt.id for message in found}))
        return len(ids)

    def _mos(self) -> int:
        ids = store.take(keys.LIST_MO_FINISH, keys.MO_FINISHING, BATCH, LEASE_SECONDS)
        if not ids:
            return 0
        archive.write_mos(mo_store.read(ids))
        failpoint("pump_after_mo_commit_before_forget")
        mo_store.forget(ids)
        return len(ids)
