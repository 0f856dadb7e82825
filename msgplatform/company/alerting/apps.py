from django.apps import AppConfig


class AlertingConfig(AppConfig):
    """Alerts to people."""

    name = "msgplatform.company.alerting"

    def ready(self) -> None:
        from msgplatform.company.alerting.turn import Sender
        from msgplatform.core import alerts

        alerts.sender_makers.append(Sender)
