from django.apps import AppConfig


class SigningInConfig(AppConfig):
    """People sign in to the console."""

    name = "msgplatform.company.signing_in"

    def ready(self) -> None:
        from msgplatform.company.signing_in import checks  # noqa: F401
        from msgplatform.core.secrets import reencrypt

        # django-allauth stores the secrets of second factors.
        reencrypt.register_json("mfa.Authenticator", "data", ("secret", "seed"))
