"""Data pump: moves what is finished from Redis into the archive, then deletes its keys.

Rows are written before keys are deleted, and by id, so that a pump that is killed in between writes
the same rows again.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway import archive, unmatched
from gateway.lifecycle import keys, mo_store, store
from gateway.lifecycle.messages import Finished
from msgplatform.core import alerts, logging
from msgplatform.core.daemon import AWAY, Worker
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
        written = _written(found)
        failpoint("pump_after_commit_before_forget")
        store.forget({message.mt.id: message.final for message in written})
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


def _written(found: Sequence[Finished]) -> list[Finished]:
    """Those that are in the archive now. One that cannot be written must not hold up the others:
    it keeps its lease, is told, and comes again when that is over."""
    try:
        archive.write_messages(found)
    except AWAY:
        raise
    except Exception as error:
        if len(found) == 1:
            message = found[0].mt.id
            log.exception("message_not_archived", id=message)
            alerts.raise_alert(
                "sms.archive",
                f"Message {message} cannot be archived",
                f"{type(error).__name__}: {error}"[:500],
                key=f"sms.archive:{message}",
            )
            return []
        half = len(found) // 2
        return [*_written(found[:half]), *_written(found[half:])]
    return list(found)
