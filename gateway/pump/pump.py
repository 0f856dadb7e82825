"""Data pump: moves what is finished from Redis into the archive, then deletes its keys. When there
is nothing to move it deletes the rows that the archive has kept long enough.

Rows are written before keys are deleted, and by id: after a pump that was killed in between, the
next pump writes the same rows again.

    list:finish ─ take ─▶ zset:finishing ─ rows, keep, forget ─▶ zset:archived, for hours
                                │ the lease is over: the next pump takes it
"""

from collections.abc import Sequence
from functools import partial

from django.conf import settings

from gateway.lifecycle import archived_store, keys, mo_store, store
from gateway.lifecycle.archived_store import Batch
from gateway.pump import late_reports, rows
from gateway.pump.retention import ARCHIVE
from msgplatform.core import alerts, logging
from msgplatform.core.archive.retention import Retention
from msgplatform.core.daemons import bisect
from msgplatform.core.daemons.daemon import Worker
from msgplatform.core.daemons.timer import Gather
from msgplatform.core.failpoints import failpoint
from msgplatform.core.lazy_text import lazy_message

log = logging.get(__name__)

BATCH = 500
# After these seconds another pump takes over the ids of a killed one.
LEASE_SECONDS = float(settings.SMS_LEASE_SECONDS)
_GATHER_SECONDS = 0.5  # short: until a message is archived, Redis answers questions about it


class Pump(Worker):
    role = "data_pump"

    def __init__(self) -> None:
        super().__init__()
        self._gather = Gather(BATCH, _GATHER_SECONDS)
        self._retention = Retention(ARCHIVE)

    def turn(self) -> bool:
        """Archive one batch of each kind, or delete old rows; true when there may be more."""
        count = 0
        if self._gather.is_due:
            lease = store.take(keys.LIST_FINISH, keys.FINISHING, BATCH, LEASE_SECONDS)
            count = len(lease.entries)
            self._gather.note_batch(count)
            bisect.isolate(lease.entries, partial(_archive_messages, lease), _set_aside)
        lease = store.take(keys.LIST_MO_FINISH, keys.MO_FINISHING, BATCH, LEASE_SECONDS)
        bisect.isolate(lease.entries, partial(_archive_mos, lease), _set_aside)
        count += len(lease.entries) + late_reports.settle(BATCH)
        self.heartbeat.done += count
        return count > 0 or self._retention.turn()


def _archive_messages(lease: store.Lease, ids: Sequence[str]) -> Sequence[str]:
    """Archive messages and delete their keys. If another pump has taken over one of them, nothing
    is done: the lease of all is over then."""
    messages = store.read(ids)
    failpoint("pump_after_read")
    try:
        rows.write_messages(messages, partial(store.is_leased, lease, [m.id for m in messages]))
    except rows.LeaseOver:
        log.warning("lease_over", messages=len(messages))
        return ids
    # After a pump that is killed here the next one writes the same rows once more.
    failpoint("pump_after_commit_before_forget")
    if not archived_store.keep(Batch(messages=messages), lease):
        log.warning("lease_over", messages=len(messages))
        return ids
    store.forget(messages)
    # These ids have no messages any more: an earlier entry of the same id was archived.
    store.drop(keys.FINISHING, list(set(ids).difference(message.id for message in messages)))
    return ids


def _archive_mos(lease: store.Lease, ids: Sequence[str]) -> Sequence[str]:
    """Archive MOs and delete their keys. A pump that has taken over one of them deletes them."""
    mos = mo_store.read(ids)
    rows.write_mos(mos)
    failpoint("pump_after_mo_commit_before_forget")
    if not archived_store.keep(Batch(mos=mos), lease):
        log.warning("lease_over", messages=len(mos))
        return ids
    mo_store.forget(ids)
    return ids


def _set_aside(message_id: str, error: Exception) -> alerts.AlertEvent:
    """The alert about a message that cannot be archived. The message keeps its lease, and is tried
    again when that is over."""
    return alerts.AlertEvent(
        "sms.archive",
        lazy_message("Message %(id)s cannot be archived", id=message_id),
        f"{type(error).__name__}: {error}"[:500],
        key=f"sms.archive:{message_id}",
    )
