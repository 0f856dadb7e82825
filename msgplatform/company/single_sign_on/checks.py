"""Configuration faults of single sign-on, as system checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register

from msgplatform.checks import TAG


@register(TAG)
def settings_check(app_configs: Any, **kwargs: Any) -> Iterator[CheckMessage]:
    """A provider that is half set up lets nobody in."""
    for name in ("OIDC_CLIENT_ID", "OIDC_CLIENT_SECRET", "OIDC_ROLES"):
        if settings.OIDC_ISSUER and not getattr(settings, name):
            yield Error(
                f"OIDC_ISSUER is set, and {name} is not",
                hint=f"Set {name}, as docs/sign-in.md describes it, or take OIDC_ISSUER away.",
                obj=name,
                id="msgplatform.E015",
            )
