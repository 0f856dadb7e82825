"""Raises an alert when no sender has a connection to a gateway, and resolves it when one has.

Every sender looks, from the thread in which it refreshes what it knows; the alert's key makes it
one alert for all of them.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

from django.utils.translation import gettext_noop as _

from gateway import presence
from gateway.directory import Directory, Gateway
from gateway.presence import LinkState
from msgplatform.core import alerts
from msgplatform.core.daemons.timer import Every
from msgplatform.core.lazy_text import lazy_message

KIND = "sms.gateway"
LOOK_SECONDS = 10.0
# Longer than a restart of either side; messages wait or take another way meanwhile.
PATIENCE_SECONDS = 60.0


class Outages:
    """`only` names the gateways that this sender serves: it looks at these. Without it, it looks at
    all, also at those with a process of their own: perhaps nobody has started that process."""

    def __init__(
        self,
        directory: Directory,
        only: Collection[str] = (),
        *,
        every: float = LOOK_SECONDS,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._directory, self._only = directory, only
        self._patience = patience
        self._since: dict[int, float] = {}  # gateway → since when nobody is connected to it
        self._next = Every(every)

    def look(self) -> None:
        """Raises RedisError."""
        if not self._next.take():
            return
        now = time.monotonic()
        states = presence.live()
        known = self._directory
        looked_at = known.served(self._only) if self._only else known.gateways
        before, up = self._since, presence.bound(states)
        self._since = {id: before.get(id, now) for id in looked_at if id not in up}
        down = {id for id, since in self._since.items() if now - since >= self._patience}
        # Of a gateway that others serve we know nothing, and an outage may be short: alerts about
        # these stay as they are.
        undecided = {
            f"{KIND}:{id}" for id in known.gateways if id not in looked_at or id in self._since
        }
        holding = [_outage(looked_at[id], states) for id in sorted(down)]
        alerts.reconcile([KIND], holding, undecided)


def _outage(gateway: Gateway, states: Iterable[LinkState]) -> alerts.Condition:
    problems = {s.problem for s in states if s.gateway == gateway.id and s.problem}
    why = "; ".join(sorted(problems)) or lazy_message(_("no sender serves it"))
    if not problems and gateway.row.own_process:
        why = lazy_message(_("run_sms_sender --gateway %(name)s is not running"), name=gateway.name)
    return alerts.Condition(
        f"{KIND}:{gateway.id}",
        lazy_message(_("No connection to the gateway %(name)s"), name=gateway.name),
        lazy_message(
            _("%(where)s: %(why)s. Messages without an alternative gateway wait."),
            where=f"{gateway.row.host}:{gateway.row.port}",
            why=why,
        ),
    )
