"""System checks of CRM sync's settings."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core import checks

from msgplatform.api.access import rates


@checks.register
def rates_are_readable(app_configs: Any, **kwargs: Any) -> list[checks.CheckMessage]:
    found: list[checks.CheckMessage] = []
    for variable in ("CRM_RATE_ADDRESS", "CRM_RATE_APPKEY"):
        try:
            rates.parse(getattr(settings, variable))
        except ValueError as error:
            found.append(
                checks.Error(
                    f"{variable}: {error}", hint=rates.HINT, obj=variable, id="crmsync.E001"
                )
            )
    return found
