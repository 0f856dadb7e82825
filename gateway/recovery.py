"""Recovery after a restore of the database: texts and MOs that were archived, or whose events were
published, since the backup are still in the SMS Redis."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from gateway import notifications
from gateway.connections import sms_redis
from gateway.directory import Directory
from gateway.forwarder.forwarder import BATCH, publish
from gateway.lifecycle import archived_store, keys, mo_store, store
from gateway.lifecycle.archived_store import Batch
from gateway.lifecycle.messages import RANK, Finished
from gateway.models import SgipMo, SgipMt, SgipMtPart, SgipReport, SgipUserRpt
from gateway.pump import rows
from msgplatform.core.data import chunks
from notify.intake.intake import Event
from notify.models import BizMsg, ColdBizMsg


class Recovered(msgspec.Struct):
    """The numbers of texts and MOs that the archive lacked, and of those that wait for the archive
    with an event that Notify may lack."""

    texts: int = 0
    mos: int = 0
    waiting: int = 0


def recover(dry_run: bool = False) -> Recovered:
    """Archive again the messages that the database lacks, and publish their events again. It may be
    repeated, and programs may run meanwhile. Raises errors of the database and of Redis."""
    directory = Directory()
    directory.refresh(at_once=True)
    # A text that was archived twice is in two batches.
    text_ids: set[str] = set()
    mo_ids: set[str] = set()
    waiting = 0
    for batch in archived_store.batches():
        missing = _missing(batch)
        text_ids |= {message.id for message in missing.messages}
        mo_ids |= {mo.id for mo in missing.mos}
        if not dry_run:
            # Publish first: a message that the archive has is not looked at again.
            event_ids = _publish(missing, directory)
            messages = [
                msgspec.structs.replace(m, event_id=event_ids.get(m.id, m.event_id))
                for m in missing.messages
            ]
            rows.write_messages(messages, lambda: True)
            rows.write_mos(missing.mos)
    for batch in _waiting():
        waiting += len(batch.messages) + len(batch.mos)
        if not dry_run:
            event_ids = _publish(batch, directory)
            endings = {m.id: m.final for m in batch.messages if m.id in event_ids}
            store.finish_published(endings, event_ids)
    return Recovered(len(text_ids), len(mo_ids), waiting)


def _missing(batch: Batch) -> Batch:
    """The messages that the archive lacks, has with a lower ending, or has with the same ending and
    without a Submit, an answer or a Report that came later."""
    ids = [int(message.id) for message in batch.messages]
    finals = dict(SgipMt.objects.filter(id__in=ids).values_list("id", "final"))
    submit_counts: defaultdict[int, int] = defaultdict(int)
    answered_parts: defaultdict[int, set[int]] = defaultdict(set)
    reported_parts: defaultdict[int, set[int]] = defaultdict(set)
    parts = SgipMtPart.objects.filter(mt_id__in=list(finals)).values_list("mt_id", "part", "result")
    for id, part, result in parts:
        submit_counts[id] += 1
        if result is not None:
            answered_parts[id].add(part)
    for id, part in SgipReport.objects.filter(mt_id__in=list(finals)).values_list("mt_id", "part"):
        reported_parts[id].add(part)

    archived_mo_ids: set[int] = set()
    for model in (SgipMo, SgipUserRpt):
        archived_mos = model._default_manager.filter(id__in=[int(mo.id) for mo in batch.mos])
        archived_mo_ids |= set(archived_mos.values_list("id", flat=True))

    def is_archived(message: Finished) -> bool:
        id = int(message.id)
        final = finals.get(id, "")
        if final != message.final:
            return RANK[message.final] <= RANK.get(final, 0)
        return (
            len(message.sent) <= submit_counts[id]
            and message.answers.keys() <= answered_parts[id]
            and message.reports.keys() <= reported_parts[id]
        )

    return Batch(
        [message for message in batch.messages if not is_archived(message)],
        [mo for mo in batch.mos if int(mo.id) not in archived_mo_ids],
    )


def _waiting() -> Iterator[Batch]:
    """Messages that were published but not archived: no program publishes them again."""
    for ids in _entries(keys.LIST_FINISH, keys.FINISHING):
        yield Batch(messages=[message for message in store.read(ids) if message.final])
    for ids in _entries(keys.LIST_MO_FINISH, keys.MO_FINISHING):
        yield Batch(mos=mo_store.read(ids))


def _entries(list_key: str, lease_key: str) -> Iterable[Sequence[str]]:
    client: Any = sms_redis()
    raw = {*client.lrange(list_key, 0, -1), *client.zrange(lease_key, 0, -1)}
    return chunks(sorted(entry.decode() for entry in raw), BATCH)


def _publish(batch: Batch, directory: Directory) -> dict[str, int]:
    """Publish the events of a batch; the events' keys make a second event of an ending none.
    Endings that shared an event share one again, if that event is gone. Returns the new event of
    each of these."""
    event_ids = {message.event_id for message in batch.messages if message.event_id}
    existing_ids = {
        id
        for model in (BizMsg, ColdBizMsg)
        for id in model.objects.filter(id__in=event_ids).values_list("id", flat=True)
    }
    events = [notifications.mo(mo, directory) for mo in batch.mos if mo.biz and mo.kind == "mo"]
    # Events that replace a missing event, each with the ids of its messages.
    new_events: list[tuple[Event, list[str]]] = []
    shared_reports: dict[int, dict[str, Event]] = defaultdict(dict)
    for message in batch.messages:
        if message.event_id in existing_ids:
            continue
        event = notifications.report(message, directory)
        if not message.event_id:
            events.append(event)
        elif event.event_type == notifications.REPORTS:
            shared_reports[message.event_id][message.id] = event
        else:
            new_events.append((event, [message.id]))
    for reports in shared_reports.values():
        new_events += notifications.in_batches(reports)
    new_ids = publish([*(event for event, _ids in new_events), *events])
    return {
        id: new_id
        for (_event, ids), new_id in zip(new_events, new_ids, strict=False)
        for id in ids
        if new_id
    }
