"""An alert about a channel that fails. It goes out by the other channels (`matching.py`)."""

from __future__ import annotations

from collections.abc import Iterable

from django.utils.translation import gettext_noop as _

from msgplatform.company.alerting.outbox import FAILING_AFTER
from msgplatform.core import alerts
from msgplatform.core.alerts import Condition
from msgplatform.core.daemons.watch.kinds import CHANNEL, key, shown
from msgplatform.core.lazy_text import lazy_message
from msgplatform.models import AlertChannel


def report(channels: Iterable[AlertChannel]) -> None:
    """Make the open alerts match the channels that fail now."""
    conditions = [
        Condition(
            key(CHANNEL, str(row.pk)),
            lazy_message(_("Alerts do not reach the channel %(name)s"), name=row.name),
            lazy_message(
                _(
                    "%(shown)s has failed since %(since)s: %(error)s. What waits for it is tried "
                    "again for 24 hours."
                ),
                shown=row.shown,
                since=shown(row.failing_since) if row.failing_since else "",
                error=row.last_error.rstrip("."),
            ),
        )
        for row in channels
        if is_failing(row)
    ]
    alerts.reconcile([CHANNEL], conditions)


def is_failing(channel: AlertChannel) -> bool:
    """True if people should hear that this channel does not work."""
    return channel.enabled and channel.failures_in_row >= FAILING_AFTER
