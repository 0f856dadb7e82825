"""Report forwarder: publishes the endings of messages and the MOs to the systems that own them.

Published means durable in Notify. Only then an id moves on to the archive. After a forwarder that
was killed in between, the next one publishes again under the same key, which changes nothing. A
frozen forwarder never publishes an ending after a higher one: the forwarder that published the
higher ending published both.

    list:report ─ take ─▶ zset:reporting ─ announce, publish ─▶ list:finish (to the pump)
                                │ the lease is over: the next forwarder takes it
"""

from collections.abc import Sequence
from functools import partial

import msgspec
from django.conf import settings

from gateway import notifications, signals
from gateway.directory import Directory
from gateway.lifecycle import keys, mo_store, store
from gateway.lifecycle.messages import RANK, Finished, Mo
from msgplatform.core import alerts, logging
from msgplatform.core.daemons import bisect
from msgplatform.core.daemons.daemon import Worker
from msgplatform.core.daemons.timer import Every, Gather
from msgplatform.core.errors import Conflict
from msgplatform.core.failpoints import failpoint
from msgplatform.core.lazy_text import lazy_message
from msgplatform.core.tracing import spans
from msgplatform.core.tracing.context import Start, is_on, log_facts, parse
from notify.intake import intake

log = logging.get(__name__)

BATCH = 500
_MAX_RANK = max(RANK.values())  # after the ending of this rank no other follows
# After these seconds another forwarder takes over the ids of a killed one.
LEASE_SECONDS = float(settings.SMS_LEASE_SECONDS)
_OVERDUE_EVERY_SECONDS = 1.0
# Short compared with the time of a Report; each commit of Notify then has more events.
_GATHER_SECONDS = 0.2


class Forwarder(Worker):
    role = "report_forwarder"
    wake_signal = signals.FORWARDER

    def __init__(self) -> None:
        super().__init__()
        self.directory = Directory()
        self._gather = Gather(BATCH, _GATHER_SECONDS)
        self._next_overdue = Every(_OVERDUE_EVERY_SECONDS)

    def turn(self) -> bool:
        """Forward one batch of each kind; true when there was any."""
        self.directory.refresh()
        if self._next_overdue.is_due and store.end_overdue(BATCH) < BATCH:
            self._next_overdue.restart()
        count = 0
        if self._gather.is_due:
            lease = store.take(keys.LIST_REPORT, keys.REPORTING, BATCH, LEASE_SECONDS)
            count = len(lease.entries)
            self._gather.note_batch(count)
            bisect.isolate(lease.entries, partial(self._forward_reports, lease), _set_aside)
        lease = store.take(keys.LIST_MO, keys.MO_REPORTING, BATCH, LEASE_SECONDS)
        bisect.isolate(lease.entries, partial(self._forward_mos, lease), _set_aside)
        count += len(lease.entries)
        self.heartbeat.done += count
        return count > 0

    def _forward_reports(self, lease: store.Lease, ids: Sequence[str]) -> Sequence[str]:
        """Publish endings, each with the earlier endings that were announced. If another forwarder
        has taken over one of the messages, nothing is published: the lease of all is over."""
        messages, began_at = store.read(ids), spans.now()
        failpoint("forwarder_after_read")
        if not store.is_leased(lease, ids):
            log.warning("lease_over", messages=len(ids))
            return ids
        # A message may be in the list twice: in another batch its ending would get another key.
        new_messages = [message for message in messages if not message.is_published]
        reports = {
            message.id: notifications.report(message, self.directory) for message in new_messages
        }
        open_ends = [message for message in new_messages if RANK[message.final] < _MAX_RANK]
        payloads = store.announce({m.id: (m.final, reports[m.id].payload) for m in open_ends})
        failpoint("forwarder_after_announce")
        events: list[intake.Event] = []
        # By message id: events that can share one: no other ending came before, none will follow.
        shared_events: dict[str, intake.Event] = {}
        for message in new_messages:
            earlier = [end for end in message.announced if RANK[end] < RANK[message.final]]
            events += [
                notifications.announced_event(message, end, message.announced[end])
                for end in sorted(earlier, key=lambda end: RANK[end])
            ]
            event = reports[message.id]
            if message.id in payloads:
                # Empty: the message has another ending, which is published in its turn.
                if payload := payloads[message.id]:
                    event = notifications.announced_event(message, message.final, payload)
                    events.append(_with_trace(event, message))
                continue
            event = _with_trace(event, message)
            if event.event_type == notifications.REPORTS and not earlier:
                shared_events[message.id] = event
            else:
                events.append(event)
        batches = notifications.in_batches(shared_events)
        event_ids = publish([*events, *(event for event, _ids in batches)])
        if began_at:  # 0 while traces are off
            contexts = [context for m in new_messages if (context := parse(m.mt.trace))]
            if contexts:
                spans.record_batch("sms forward batch", began_at, contexts, len(new_messages))
        # After a forwarder that is killed here the next one publishes the same keys once more.
        failpoint("forwarder_after_publish")
        batch_ids = zip(batches, event_ids[len(events) :], strict=True)
        event_id_of = {
            id: event_id
            for (_, message_ids), event_id in batch_ids
            for id in message_ids
            if event_id
        }
        store.finish_published({message.id: message.final for message in messages}, event_id_of)
        # These ids have no messages any more: an earlier entry of the same id was archived.
        store.drop(keys.REPORTING, list(set(ids).difference(message.id for message in messages)))
        return ids

    def _forward_mos(self, lease: store.Lease, ids: Sequence[str]) -> Sequence[str]:
        """Publish MOs. Their owner is stored first, for the archive and for the forwarder after one
        that was killed. If another forwarder has taken over one of the MOs, nothing is published.
        """
        name, accounts = settings.SMS_DEFAULT_ACCOUNT, self.directory.known.accounts.values()
        default = next((account for account in accounts if account.row.name == name), None)
        mos: list[Mo] = []
        for mo in mo_store.read(ids):
            account = self.directory.owner_of(mo.sp_number, mo.text) or default
            # The owner that an earlier forwarder has stored may have the event already.
            owner = {"biz": account.biz_id, "account": account.id} if account and not mo.biz else {}
            mos.append(msgspec.structs.replace(mo, **owner))
        if not mo_store.rewrite(mos, lease):
            log.warning("lease_over", messages=len(mos))
            return ids
        publish([notifications.mo(mo, self.directory) for mo in mos if mo.biz and mo.kind == "mo"])
        failpoint("forwarder_after_mo_publish")
        mo_ids = [mo.id for mo in mos]
        store.pass_on(keys.MO_REPORTING, keys.LIST_MO_FINISH, mo_ids)
        store.drop(keys.MO_REPORTING, list(set(ids).difference(mo_ids)))
        return ids


def _with_trace(event: intake.Event, message: Finished) -> intake.Event:
    """The event of an ending, in the trace of its message.

    The spans of the message are recorded when its ending is published, from the times that Redis
    keeps: a sender or a receiver that is killed takes no span with it. The event is a child of the
    last span, so that the trace goes on to the consumer of the Reports; an event of several endings
    is no child.
    """
    context = parse(message.mt.trace) if message.mt.trace and is_on() else None
    if context is None:
        return event
    last = context
    steps = (
        ("sms wait", message.accepted_at, message.submitted_at or message.ended_at),
        ("sms submit", message.submitted_at, message.responded_at),
        ("sms report", message.responded_at or message.submitted_at, message.reported_at),
    )
    error = message.error if message.final in ("failed", "expired") else ""
    for name, began, ended in steps:
        if began and ended:
            last = spans.record(
                name, context, spans.nanoseconds(began), ended_at=spans.nanoseconds(ended),
                kind="client" if name == "sms submit" else "internal", error=error,
                message_id=message.id, gateway=message.gateway, state=message.final,
            )  # fmt: skip
    return msgspec.structs.replace(event, trace=Start(last, spans.now()))


def _set_aside(message_id: str, error: Exception) -> alerts.AlertEvent:
    """The alert about a message whose event cannot be published. The message keeps its lease, and
    is tried again when that is over."""
    return alerts.AlertEvent(
        "sms.event",
        lazy_message("The event of message %(id)s could not be published", id=message_id),
        f"{type(error).__name__}: {error}"[:500],
        key=f"sms.event:{message_id}",
    )


def publish(events: Sequence[intake.Event]) -> list[int]:
    """Make all events durable, or raise an exception. Returns their ids: for a known event the id
    of the first one, 0 for a refused one. An event that Notify refuses is a fault of SMS itself: it
    raises an alert, and must not hold up the archive."""
    verdicts = intake.publish_many(events) if events else []
    for event, verdict in zip(events, verdicts, strict=True):
        parent = event.trace.parent if event.trace else None
        facts = log_facts(parent.text) if parent else {}
        if verdict.code == Conflict.code:
            # A killed forwarder published the event; now more is known, such as another Report.
            log.info("event_known", key=event.idempotency_key, **facts)
        elif verdict.outcome == "rejected":
            log.error("event_refused", key=event.idempotency_key, why=verdict.reason, **facts)
            alerts.raise_alert(
                "sms.event",
                lazy_message("An event %(type)s could not be published", type=event.event_type),
                verdict.reason,
                key=f"sms.event:{event.idempotency_key}",
            )
    return [verdict.id for verdict in verdicts]
