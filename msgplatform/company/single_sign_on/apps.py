from collections.abc import Iterator
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register
from django.http import HttpRequest

from msgplatform import env


class SingleSignOnConfig(AppConfig):
    """People sign in by the company's provider, or by an account of a chat."""

    name = "msgplatform.company.single_sign_on"

    def ready(self) -> None:
        register(_check_settings, env.CHECKS_TAG)
        if not settings.DAEMON:
            from msgplatform.company.signing_in import pages

            pages.provider_addresses.append(_address)


def _check_settings(app_configs: Any, **kwargs: Any) -> Iterator[CheckMessage]:
    """Check the settings: a provider that is half set up lets nobody in."""
    needs = [("OIDC_ISSUER", f"OIDC_{name}") for name in ("CLIENT_ID", "CLIENT_SECRET", "ROLES")]
    for provider in ("FEISHU", "DINGTALK"):
        client_id, secret = f"{provider}_CLIENT_ID", f"{provider}_CLIENT_SECRET"
        needs += [(client_id, secret), (secret, client_id)]
    for name, needed_name in needs:
        if getattr(settings, name) and not getattr(settings, needed_name):
            yield Error(
                f"{name} is set, and {needed_name} is not",
                hint=f"Set {needed_name}, as docs/sign-in.md describes it, or take {name} away.",
                obj=needed_name,
                id="msgplatform.E015",
            )
    if settings.OIDC_CLIENT_ID and not settings.OIDC_ISSUER:
        yield Warning(
            "OIDC_CLIENT_ID is set, and OIDC_ISSUER is not: nobody signs in by the provider",
            hint="Set OIDC_ISSUER, as docs/sign-in.md describes it, or take OIDC_CLIENT_ID away.",
            obj="OIDC_ISSUER",
            id="msgplatform.W017",
        )


def _address(request: HttpRequest) -> str:
    """The provider's page for logging out. It is loaded only where there is a provider."""
    if not settings.OIDC_ISSUER:
        return ""
    from msgplatform.company.single_sign_on import logout

    return logout.address(request)
