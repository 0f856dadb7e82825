"""System checks of Notify's settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core import checks

from notify.subscriptions.limits import LEASE_MARGIN_SECONDS


@checks.register
def lease_outlasts_request(
    app_configs: Sequence[Any] | None, **kwargs: Any
) -> list[checks.CheckMessage]:
    """A lease that ends during a request lets a second sender deliver the same message."""
    least = 2 * settings.NOTIFY_TIMEOUT_SECONDS + LEASE_MARGIN_SECONDS
    lease = settings.NOTIFY_LEASE_SECONDS
    if lease >= least:
        return []
    return [
        checks.Error(
            f"NOTIFY_LEASE_SECONDS={lease} is shorter than twice a "
            f"request may take (NOTIFY_TIMEOUT_SECONDS={settings.NOTIFY_TIMEOUT_SECONDS:g})",
            hint=f"Set NOTIFY_LEASE_SECONDS to {least:g} or more, better to several times that.",
            id="notify.E001",
        )
    ]
