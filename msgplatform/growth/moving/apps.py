from django.apps import AppConfig


class MovingConfig(AppConfig):
    """A business system moves from one cell to another."""

    name = "msgplatform.growth.moving"
