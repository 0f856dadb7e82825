from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

from msgplatform.core import flows


class GatewayConfig(AppConfig):
    """Short messages over SGIP."""

    name = "gateway"
    verbose_name = _("SMS")

    def ready(self) -> None:
        from gateway import checks, notifications  # noqa: F401
        from gateway.flow import FLOW

        flows.register(FLOW)
        notifications.register_personal_fields()
