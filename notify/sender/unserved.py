"""Tells somebody when a subscription has a process of its own and nobody runs one.

Every sender of all the others looks; the alert's key makes it one alert.
"""

from __future__ import annotations

import time

from django.utils.translation import gettext as _

from msgplatform.core import alerts
from msgplatform.core.daemons.timer import Every
from notify import lane_status
from notify.directory import Subscription, Subscriptions

KIND = "notify.own_process"
LOOK_SECONDS = 10.0
PATIENCE_SECONDS = 60.0  # longer than a restart


class Unserved:
    def __init__(
        self,
        subscriptions: Subscriptions,
        *,
        every: float = LOOK_SECONDS,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._subscriptions, self._patience = subscriptions, patience
        self._since: dict[int, float] = {}
        self._next = Every(every)

    def look(self) -> None:
        """Raises RedisError."""
        if not self._next.take():
            return
        now = time.monotonic()
        served, before = lane_status.dedicated(), self._since
        missing = {
            row.id: row
            for row in self._subscriptions.all()
            if row.own_process and row.sendable and row.id not in served
        }
        self._since = {pk: before.get(pk, now) for pk in missing}
        holding = [
            _condition(row)
            for pk, row in sorted(missing.items())
            if now - self._since[pk] >= self._patience
        ]
        alerts.reconcile([KIND], holding, {_key(pk) for pk in missing})


def _key(subscription: int) -> str:
    return f"{KIND}:{subscription}"


def _condition(row: Subscription) -> alerts.Condition:
    return alerts.Condition(
        _key(row.id),
        _("Nobody delivers for the subscription %d") % row.id,
        _(
            "It has a process of its own, and none runs: its copies wait. Start run_sender "
            "--subscription %d, or take its own process away in the console."
        )
        % row.id,
    )
