from django.apps import AppConfig
from django.db.models.signals import post_migrate
from django.utils.translation import gettext_lazy as _


class MsgplatformConfig(AppConfig):
    """The shared part of the platform."""

    name = "msgplatform"
    verbose_name = _("Platform")

    def ready(self) -> None:
        from msgplatform import checks, roles  # noqa: F401
        from msgplatform.core import alerts, daemons
        from msgplatform.monitor.alert_store import AlertTable

        alerts.stores.append(AlertTable())
        daemons.threads.append("msgplatform.monitor.watch.watch.watch")
        post_migrate.connect(roles.update, dispatch_uid="msgplatform.roles")
