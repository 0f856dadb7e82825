"""After a restore of the database: texts and MOs that were archived, or whose events were
published, since the backup. The SMS Redis still has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gateway import notifications
from gateway.connections import sms_redis
from gateway.directory import Directory
from gateway.forwarder.forwarder import BATCH, publish
from gateway.lifecycle import archived_store, keys, mo_store, store
from gateway.lifecycle.archived_store import Batch
from gateway.lifecycle.messages import RANK
from gateway.models import SgipMo, SgipMt, SgipUserRpt
from gateway.pump import rows
from msgplatform.core.data.chunks import chunks


@dataclass
class Recovered:
    """Texts and MOs that the archive lacked, and those that wait for it with an event that Notify
    may lack."""

    texts: int = 0
    mos: int = 0
    waiting: int = 0


def recover(dry_run: bool = False) -> Recovered:
    """Archive again what the database lacks, and publish its events again. It can be repeated, and
    programs may run meanwhile. Raises errors of the database and of Redis."""
    directory, total = Directory(), Recovered()
    directory.refresh(at_once=True)
    for batch in archived_store.batches():
        missing = _missing(batch)
        total.texts += len(missing.messages)
        total.mos += len(missing.mos)
        if not dry_run:
            # Events first: a message that is in the archive is not looked at again.
            _publish(missing, directory)
            rows.write_messages(missing.messages, lambda: True)
            rows.write_mos(missing.mos)
    for batch in _waiting():
        total.waiting += len(batch.messages) + len(batch.mos)
        if not dry_run:
            _publish(batch, directory)
    return total


def _missing(batch: Batch) -> Batch:
    """What the archive does not have, or has with a lower ending."""
    ids = [int(message.id) for message in batch.messages]
    finals = dict(SgipMt.objects.filter(id__in=ids).values_list("id", "final"))
    archived_mo_ids: set[int] = set()
    for model in (SgipMo, SgipUserRpt):
        rows = model._default_manager.filter(id__in=[int(mo.id) for mo in batch.mos])
        archived_mo_ids |= set(rows.values_list("id", flat=True))
    return Batch(
        [m for m in batch.messages if RANK[m.final] > RANK.get(finals.get(int(m.id), ""), 0)],
        [mo for mo in batch.mos if int(mo.id) not in archived_mo_ids],
    )


def _waiting() -> Iterator[Batch]:
    """What was published and is not archived yet: nobody publishes it a second time."""
    for ids in _entries(keys.LIST_FINISH, keys.FINISHING):
        yield Batch(messages=[message for message in store.read(ids) if message.final])
    for ids in _entries(keys.LIST_MO_FINISH, keys.MO_FINISHING):
        yield Batch(mos=mo_store.read(ids))


def _entries(list_key: str, lease_key: str) -> Iterable[Sequence[str]]:
    client: Any = sms_redis()
    raw = {*client.lrange(list_key, 0, -1), *client.zrange(lease_key, 0, -1)}
    return chunks(sorted(entry.decode() for entry in raw), BATCH)


def _publish(batch: Batch, directory: Directory) -> None:
    """Their keys make a second event of the same ending none."""
    publish(
        [
            *(notifications.report(message, directory) for message in batch.messages),
            *(notifications.mo(mo, directory) for mo in batch.mos if mo.biz and mo.kind == "mo"),
        ]
    )
