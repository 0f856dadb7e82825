from collections.abc import Iterator
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, register

from msgplatform import env


class SigningInConfig(AppConfig):
    """People sign in to the console."""

    name = "msgplatform.company.signing_in"

    def ready(self) -> None:
        from msgplatform.core.secrets import reencrypt

        register(_check_settings, env.CHECKS_TAG)
        # django-allauth stores the secrets of second factors.
        reencrypt.json_fields["mfa.Authenticator"] = ("data", ("secret", "seed"))


def _check_settings(app_configs: Any, **kwargs: Any) -> Iterator[CheckMessage]:
    if not settings.LOCAL_PASSWORDS and not settings.OIDC_ISSUER:
        yield Error(
            "LOCAL_PASSWORDS is no, and there is no OIDC_ISSUER: nobody could sign in",
            hint="Set OIDC_ISSUER, or LOCAL_PASSWORDS=yes.",
            obj="LOCAL_PASSWORDS",
            id="msgplatform.E016",
        )
