from collections.abc import Iterator
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, register
from django.http import HttpRequest

from msgplatform import env


class SingleSignOnConfig(AppConfig):
    """People sign in by the company's provider, or by an account of a chat."""

    name = "msgplatform.company.single_sign_on"

    def ready(self) -> None:
        register(_check_settings, env.CHECKS_TAG)
        if not settings.DAEMON:
            from msgplatform.company.signing_in import pages

            pages.register_provider(_address)


def _check_settings(app_configs: Any, **kwargs: Any) -> Iterator[CheckMessage]:
    """Check the settings: a provider that is half set up lets nobody in."""
    for name in ("OIDC_CLIENT_ID", "OIDC_CLIENT_SECRET", "OIDC_ROLES"):
        if settings.OIDC_ISSUER and not getattr(settings, name):
            yield Error(
                f"OIDC_ISSUER is set, and {name} is not",
                hint=f"Set {name}, as docs/sign-in.md describes it, or take OIDC_ISSUER away.",
                obj=name,
                id="msgplatform.E015",
            )


def _address(request: HttpRequest) -> str:
    """The provider's page for logging out. It is loaded only where there is a provider."""
    if not settings.OIDC_ISSUER:
        return ""
    from msgplatform.company.single_sign_on import logout

    return logout.address(request)
