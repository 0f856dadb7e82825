"""Report forwarder: publishes the endings of messages and the MOs to the systems that own them.

Published means durable in Notify. Only then an id moves on to the archive; a forwarder that is
killed in between publishes again under the same key, which changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec
from django.conf import settings

from gateway import events
from gateway.directory import Account, Directory
from gateway.lifecycle import keys, mo_store, store
from gateway.lifecycle.messages import Mo
from msgplatform.core import alerts, logging
from msgplatform.core.daemon import Worker
from msgplatform.core.failpoints import failpoint
from notify import intake

log = logging.get(__name__)

BATCH = 500
# A killed forwarder's ids come back after this long.
LEASE_SECONDS = 30.0
_OVERDUE_EVERY_SECONDS = 1.0


class Forwarder(Worker):
    role = "report_forwarder"

    def __init__(self) -> None:
        super().__init__()
        self.directory = Directory()
        self._next_overdue = 0.0

    def turn(self) -> bool:
        """Forward one batch of each kind; true when there was any."""
        self.directory.refresh()
        self._end_overdue()
        done = self._reports() + self._mos()
        self.heartbeat.done += done
        return done > 0

    def _reports(self) -> int:
        ids = store.take(keys.LIST_REPORT, keys.REPORTING, BATCH, LEASE_SECONDS)
        if not ids:
            return 0
        found = store.read(ids)
        _publish([events.report(message, self.directory) for message in found])
        failpoint("forwarder_after_publish")
        store.pass_on(keys.REPORTING, keys.LIST_FINISH, [message.mt.id for message in found])
        # Archived already, by an earlier entry of the same id.
        store.drop(keys.REPORTING, list(set(ids) - {message.mt.id for message in found}))
        return len(ids)

    def _mos(self) -> int:
        ids = store.take(keys.LIST_MO, keys.MO_REPORTING, BATCH, LEASE_SECONDS)
        if not ids:
            return 0
        found = [self._owned(message) for message in mo_store.read(ids)]
        mo_store.rewrite(found)
        owned = [message for message in found if message.biz and message.kind == "mo"]
        _publish([events.mo(message, self.directory) for message in owned])
        failpoint("forwarder_after_mo_publish")
        store.pass_on(keys.MO_REPORTING, keys.LIST_MO_FINISH, [message.id for message in found])
        store.drop(keys.MO_REPORTING, list(set(ids) - {message.id for message in found}))
        return len(ids)

    def _owned(self, message: Mo) -> Mo:
        account = self.directory.owner_of(message.sp_number, message.text) or self._default()
        if account is None:
            return message
        return msgspec.structs.replace(message, biz=account.biz_id, account=account.id)

    def _default(self) -> Account | None:
        name = settings.SMS_DEFAULT_ACCOUNT
        return next((a for a in self.directory.accounts.values() if a.row.name == name), None)

    def _end_overdue(self) -> None:
        if time.monotonic() >= self._next_overdue:
            more = store.overdue(BATCH) == BATCH
            self._next_overdue = time.monotonic() + (0 if more else _OVERDUE_EVERY_SECONDS)


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
