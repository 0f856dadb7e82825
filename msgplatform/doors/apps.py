from django.apps import AppConfig


class DoorsConfig(AppConfig):
    """The ways in: API, web server, console."""

    name = "msgplatform.doors"
