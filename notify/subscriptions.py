"""The settings of subscriptions, cached: the senders go on with them while the database is away."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from django.conf import settings

from msgplatform.core import alerts, logging, queue_names
from msgplatform.core.daemon import AWAY
from notify import signing, validators
from notify.models import BizReceive

log = logging.get(__name__)

# How long a change in the console may take to reach a running daemon.
REFRESH_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Subscription:
    """One row of biz_receive with its consumer, ready for use."""

    id: int
    biz_id: int
    queue: str
    status: int
    url: str
    keys: tuple[bytes, ...]
    timeout: float
    schedule: tuple[float, ...]
    in_flight_limit: int

    @property
    def sendable(self) -> bool:
        return self.status in (BizReceive.Status.NORMAL, BizReceive.Status.SKIPPING)


class Subscriptions:
    """All subscriptions by id."""

    def __init__(self, refresh_seconds: float = REFRESH_SECONDS) -> None:
        self._rows: dict[int, Subscription] = {}
        self._refresh_seconds = refresh_seconds
        self._next = 0.0

    def refresh(self, at_once: bool = False) -> None:
        """Read them again if it is time. With the database away, what is known stays."""
        now = time.monotonic()
        if now < self._next and not at_once:
            return
        self._next = now + self._refresh_seconds
        try:
            self._rows = {row.id: row for row in _read()}
        except AWAY as error:
            if not self._rows:
                raise
            log.warning("subscriptions_not_refreshed", why=str(error)[:200])

    def get(self, subscription_id: int) -> Subscription | None:
        return self._rows.get(subscription_id)

    def all(self) -> Sequence[Subscription]:
        return list(self._rows.values())


def _read() -> list[Subscription]:
    rows = BizReceive.objects.select_related("receive").order_by("id")
    return [found for row in rows if (found := _readable(row))]


def _readable(row: BizReceive) -> Subscription | None:
    """One row that cannot be used must not stop all the others."""
    try:
        return _from_row(row)
    except (TypeError, ValueError) as error:
        alerts.raise_alert(
            "notify.subscription",
            f"The subscription {row} cannot be used",
            f"{error}. Correct it in the console; its copies wait.",
            key=f"notify.subscription:{row.pk}",
        )
        return None


def _from_row(row: BizReceive) -> Subscription:
    return Subscription(
        id=row.pk,
        biz_id=row.biz_id,
        queue=queue_names.notify(row.biz_id, row.receive_id),
        status=row.status,
        url=row.receive.url,
        keys=(signing.decode_secret(row.receive.secret),),
        # However it is set: a request that may outlast its lease would never be sent.
        timeout=min(row.timeout or settings.NOTIFY_TIMEOUT_SECONDS, validators.longest_timeout()),
        schedule=tuple(float(seconds) for seconds in row.schedule),
        in_flight_limit=row.in_flight_limit,
    )
