"""Configuration faults of signing in, as system checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register

from msgplatform.checks import TAG


@register(TAG)
def settings_check(app_configs: Any, **kwargs: Any) -> Iterator[CheckMessage]:
    if not settings.LOCAL_PASSWORDS and not settings.OIDC_ISSUER:
        yield Error(
            "LOCAL_PASSWORDS is no, and there is no OIDC_ISSUER: nobody could sign in",
            hint="Set OIDC_ISSUER, or LOCAL_PASSWORDS=yes.",
            obj="LOCAL_PASSWORDS",
            id="msgplatform.E016",
        )
