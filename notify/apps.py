from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

from msgplatform.core import features, flows


class NotifyConfig(AppConfig):
    """Asynchronous delivery between systems."""

    name = "notify"
    verbose_name = _("Notify")

    def ready(self) -> None:
        from notify import checks, directory  # noqa: F401
        from notify.flow import FLOW
        from notify.monitor import alert_events

        flows.register(FLOW)
        alert_events.register()
        features.upkeep.append("notify.monitor.alert_events.MissedAlerts")
        directory.connect_signals()
