from django.apps import AppConfig


class OperationConfig(AppConfig):
    """What keeps an installation running: commands, supervision, doctor."""

    name = "msgplatform.operation"
