from django.apps import AppConfig
from django.conf import settings
from django.http import HttpRequest


class SingleSignOnConfig(AppConfig):
    """People sign in by the company's provider, or by an account of a chat."""

    name = "msgplatform.company.single_sign_on"

    def ready(self) -> None:
        from msgplatform.company.single_sign_on import checks  # noqa: F401

        if not settings.DAEMON:
            from msgplatform.company.signing_in import pages

            pages.register_provider(_address)


def _address(request: HttpRequest) -> str:
    """The provider's page for logging out; it is loaded where there is a provider only."""
    if not settings.OIDC_ISSUER:
        return ""
    from msgplatform.company.single_sign_on import logout

    return logout.address(request)
