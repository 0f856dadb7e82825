"""Report forwarder: publishes the endings of messages and the MOs to the systems that own them.

Published means durable in Notify. Only then an id moves on to the archive; a forwarder that is
killed in between publishes again under the same key, which changes nothing. One that was frozen
never publishes an ending after a higher one: whoever published the higher one published both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import msgspec
from django.conf import settings

from gateway import bells, events
from gateway.directory import Account, Directory
from gateway.lifecycle import keys, mo_store, store
from gateway.lifecycle.messages import RANK, Finished, Mo
from msgplatform.core import alerts, logging
from msgplatform.core.daemons import bisect
from msgplatform.core.daemons.daemon import Worker
from msgplatform.core.daemons.gather import Gather
from msgplatform.core.daemons.timer import Every
from msgplatform.core.failpoints import failpoint
from notify import intake

log = logging.get(__name__)

BATCH = 500
_LAST = max(RANK.values())  # no other ending follows one of this rank
# A killed forwarder's ids come back after this long.
LEASE_SECONDS = float(settings.SMS_LEASE_SECONDS)
_OVERDUE_EVERY_SECONDS = 1.0
# Little beside the seconds that a Report takes; and each commit of Notify serves more events.
_GATHER_SECONDS = 0.2


class Forwarder(Worker):
    role = "report_forwarder"
    bell = bells.FORWARDER

    def __init__(self) -> None:
        super().__init__()
        self.directory = Directory()
        self._gather = Gather(BATCH, _GATHER_SECONDS)
        self._next_overdue = Every(_OVERDUE_EVERY_SECONDS)

    def turn(self) -> bool:
        """Forward one batch of each kind; true when there was any."""
        self.directory.refresh()
        self._end_overdue()
        done = self._reports() + self._mos()
        self.heartbeat.done += done
        return done > 0

    def _reports(self) -> int:
        if not self._gather.is_due:
            return 0
        leased = store.lease_some(keys.LIST_REPORT, keys.REPORTING, BATCH, LEASE_SECONDS)
        self._gather.took(len(leased.entries))
        bisect.isolate(leased.entries, partial(self._forward_reports, leased), _set_aside)
        return len(leased.entries)

    def _mos(self) -> int:
        ids = store.take(keys.LIST_MO, keys.MO_REPORTING, BATCH, LEASE_SECONDS)
        bisect.isolate(ids, self._forward_mos, _set_aside)
        return len(ids)

    def _forward_reports(self, leased: store.Leased, ids: Sequence[str]) -> Sequence[str]:
        """What another forwarder has taken over meanwhile is left to it."""
        found = store.read(ids)
        failpoint("forwarder_after_read")
        if not store.holds(leased, ids):
            log.warning("lease_over", messages=len(ids))
            return ids
        _publish(self._events(found))
        failpoint("forwarder_after_publish")
        store.published({message.id: message.final for message in found})
        # Archived already, by an earlier entry of the same id.
        store.drop(keys.REPORTING, list(set(ids).difference(message.id for message in found)))
        return ids

    def _events(self, found: Sequence[Finished]) -> list[intake.Event]:
        """With each ending those before it that were announced; without those that are over."""
        fresh = {message.id: events.report(message, self.directory) for message in found}
        open_ends = [message for message in found if RANK[message.final] < _LAST]
        payloads = store.announce({m.id: (m.final, fresh[m.id].payload) for m in open_ends})
        failpoint("forwarder_after_announce")
        made: list[intake.Event] = []
        for message in found:
            earlier = [final for final in message.said if RANK[final] < RANK[message.final]]
            made += [
                events.said(message, final, message.said[final])
                for final in sorted(earlier, key=lambda final: RANK[final])
            ]
            event = fresh[message.id]
            if payload := payloads.get(message.id, event.payload):
                made.append(replace(event, payload=payload))
        return made

    def _forward_mos(self, ids: Sequence[str]) -> Sequence[str]:
        """With their owner written down first, for the archive."""
        found = [self._owned(mo) for mo in mo_store.read(ids)]
        mo_store.rewrite(found)
        _publish([events.mo(mo, self.directory) for mo in found if mo.biz and mo.kind == "mo"])
        failpoint("forwarder_after_mo_publish")
        there = [mo.id for mo in found]
        store.pass_on(keys.MO_REPORTING, keys.LIST_MO_FINISH, there)
        store.drop(keys.MO_REPORTING, list(set(ids).difference(there)))
        return ids

    def _owned(self, message: Mo) -> Mo:
        account = self.directory.owner_of(message.sp_number, message.text) or self._default()
        if account is None:
            return message
        return msgspec.structs.replace(message, biz=account.biz_id, account=account.id)

    def _default(self) -> Account | None:
        name = settings.SMS_DEFAULT_ACCOUNT
        return next((a for a in self.directory.accounts.values() if a.row.name == name), None)

    def _end_overdue(self) -> None:
        if self._next_overdue.is_due and store.overdue(BATCH) < BATCH:
            self._next_overdue.restart()


def _set_aside(message: str, error: Exception) -> alerts.AlertEvent:
    """It keeps its lease, and comes again when that is over."""
    return alerts.AlertEvent(
        "sms.event",
        f"The event of message {message} could not be published",
        f"{type(error).__name__}: {error}"[:500],
        key=f"sms.event:{message}",
    )


def _publish(made: Sequence[intake.Event]) -> None:
    """All of them durable, or an exception. One that Notify refuses is our own fault: it is told,
    and must not hold up the archive."""
    for event, verdict in zip(made, intake.publish_many(made) if made else (), strict=True):
        if verdict.outcome == "rejected":
            log.error("event_refused", key=event.idempotency_key, why=verdict.reason)
            alerts.raise_alert(
                "sms.event",
                f"An event {event.event_type} could not be published",
                verdict.reason,
                key=f"sms.event:{event.idempotency_key}",
            )
