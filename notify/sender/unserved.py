"""Raises an alert when a subscription has a process of its own and none runs.

Every sender that serves all the other subscriptions looks; the alert's key makes it one alert.
"""

from __future__ import annotations

import time

from django.utils.translation import gettext_noop as _

from msgplatform.core import alerts
from msgplatform.core.daemons.timer import Every
from msgplatform.core.lazy_text import lazy_message
from notify import presence
from notify.directory import Subscriptions

KIND = "notify.own_process"
LOOK_SECONDS = 10.0
PATIENCE_SECONDS = 60.0  # longer than a restart


class Unserved:
    """Looks every `every` seconds; a process that is missing for `patience` seconds is reported."""

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
        served_ids, since = presence.dedicated_subscriptions(), self._since
        missing = {
            row.id
            for row in self._subscriptions.all()
            if row.own_process and row.is_sendable and row.id not in served_ids
        }
        self._since = {pk: since.get(pk, now) for pk in missing}
        text = _(
            "It has a process of its own, and none runs: its deliveries wait. Start run_sender "
            "--subscription %(id)d, or switch off its own process in the console."
        )
        subject = _("Nobody delivers for the subscription %(id)d")
        holding = [
            alerts.Condition(
                f"{KIND}:{pk}", lazy_message(subject, id=pk), lazy_message(text, id=pk)
            )
            for pk in sorted(missing)
            if now - self._since[pk] >= self._patience
        ]
        # One that has been missing for less than `patience` opens no alert, and closes none.
        alerts.reconcile([KIND], holding, {f"{KIND}:{pk}" for pk in missing})
