"""The settings of subscriptions, cached: the daemons go on with them while the database is away."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any

from django.conf import settings
from django.utils import timezone

from msgplatform.core import alerts, logging
from msgplatform.core.daemons.daemon import AWAY
from msgplatform.core.data import sql
from notify import limits, queue_names, signing
from notify.models import DEFAULT_SCHEDULE, BizReceive, Receive

log = logging.get(__name__)

# How long a change in the console may take to reach a running daemon.
REFRESH_SECONDS = 2.0
CLOCK_TOLERANCE_SECONDS = 30.0
KIND = "notify.subscription"


@dataclass(frozen=True, slots=True)
class Subscription:
    """One row of biz_receive with its consumer, ready for use."""

    id: int
    biz_id: int
    queue: str
    status: int
    url: str
    keys: tuple[bytes, ...]
    header_prefix: str
    headers: tuple[tuple[str, str], ...]
    networks: tuple[IPv4Network | IPv6Network, ...]
    timeout: float
    schedule: tuple[float, ...]  # a wait after each failed attempt but the last
    in_flight_limit: int
    rate_limit: float  # requests a second; 0: no limit
    failing_since: datetime | None

    @property
    def sendable(self) -> bool:
        return self.status in (BizReceive.Status.NORMAL, BizReceive.Status.SKIPPING)


class Subscriptions:
    """All subscriptions by id. An unreadable row is left out, with an alert while it is so."""

    def __init__(self, refresh_seconds: float = REFRESH_SECONDS) -> None:
        # Seconds by which this machine's clock is ahead of the database's, which leases go by.
        self.clock_ahead = 0.0
        self._rows: dict[int, Subscription] = {}
        self._unreadable: frozenset[int] = frozenset()
        self._reported: frozenset[int] | None = None  # at first, what another process left open
        self._refresh_seconds = refresh_seconds
        self._next = 0.0
        self._clock_is_wrong = False

    def refresh(self, at_once: bool = False) -> None:
        """Read them again if it is time. With the database away, what is known stays."""
        now = time.monotonic()
        if now < self._next and not at_once:
            return
        self._next = now + self._refresh_seconds
        try:
            rows = list(BizReceive.objects.select_related("receive").order_by("id"))
            self._compare_clocks()
        except AWAY as error:
            if not self._rows:
                raise
            log.warning("subscriptions_not_refreshed", why=str(error)[:200])
            return
        self._take_over(rows)

    def get(self, subscription_id: int) -> Subscription | None:
        return self._rows.get(subscription_id)

    def is_unreadable(self, subscription_id: int) -> bool:
        """It is there, but cannot be used until somebody corrects it."""
        return subscription_id in self._unreadable

    def all(self) -> Sequence[Subscription]:
        return list(self._rows.values())

    def _compare_clocks(self) -> None:
        before = time.time()
        database = sql.now().timestamp()
        self.clock_ahead = (before + time.time()) / 2 - database
        key = f"notify.clock:{socket.gethostname()}"
        if abs(self.clock_ahead) < CLOCK_TOLERANCE_SECONDS:
            if self._clock_is_wrong:
                self._clock_is_wrong = False
                alerts.resolve(key)
        elif not self._clock_is_wrong:
            self._clock_is_wrong = True
            alerts.raise_alert(
                "notify.clock",
                f"The clock of {socket.gethostname()} differs from the database's",
                f"By {self.clock_ahead:+.0f} seconds. Consumers refuse signatures whose time is "
                "off by more than five minutes; synchronise both machines' clocks.",
                key=key,
            )

    def _take_over(self, rows: Sequence[BizReceive]) -> None:
        found: dict[int, Subscription] = {}
        unreadable: dict[int, alerts.Condition] = {}
        for row in rows:
            try:
                found[row.pk] = from_row(row)
            except (TypeError, ValueError, AttributeError) as error:
                # One row that cannot be used must not stop all the others.
                unreadable[row.pk] = _unusable(row, error)
        self._rows, self._unreadable = found, frozenset(unreadable)
        if self._unreadable != self._reported and alerts.reconcile([KIND], unreadable.values()):
            self._reported = self._unreadable


def from_row(row: BizReceive) -> Subscription:
    return Subscription(
        id=row.pk,
        biz_id=row.biz_id,
        queue=queue_names.subscription(row.biz_id, row.receive_id),
        status=row.status,
        url=row.receive.url,
        keys=tuple(_keys(row.receive)),
        header_prefix=row.receive.header_prefix,
        headers=tuple(row.receive.headers.items()),
        networks=tuple(ip_network(network) for network in row.receive.networks),
        # However it is set: a request that may outlast its lease would never be sent.
        timeout=min(row.timeout or settings.NOTIFY_TIMEOUT_SECONDS, limits.longest_timeout()),
        schedule=waits(row.schedule, row.attempts_limit),
        in_flight_limit=row.in_flight_limit,
        rate_limit=row.rate_limit or 0.0,
        failing_since=row.failing_since,
    )


def waits(schedule: Sequence[Any], attempts_limit: int | None) -> tuple[float, ...]:
    """The schedule cut, or continued with its last wait, to one less than the attempts allowed."""
    seconds = tuple(float(wait) for wait in schedule)
    if attempts_limit is None:
        return seconds
    missing = attempts_limit - 1 - len(seconds)
    return seconds[: attempts_limit - 1] + (seconds[-1:] or (DEFAULT_SCHEDULE[0],)) * max(
        0, missing
    )


def _keys(receive: Receive) -> list[bytes]:
    """The secret's key first; after a rotation the previous one too, until its time is over."""
    keys = [signing.decode_secret(receive.secret)]
    until = receive.previous_secret_until
    if receive.previous_secret and until and until > timezone.now():
        keys.append(signing.decode_secret(receive.previous_secret))
    return keys


def _unusable(row: BizReceive, error: Exception) -> alerts.Condition:
    return alerts.Condition(
        f"{KIND}:{row.pk}",
        f"The subscription {row} cannot be used",
        f"{error}. Correct it in the console; its copies wait.",
    )
