from django.apps import AppConfig


class ListeningConfig(AppConfig):
    """Programs of engineers fetch deliveries, for development."""

    name = "notify.listening"
