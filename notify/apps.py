from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class NotifyConfig(AppConfig):
    """Asynchronous delivery between systems."""

    name = "notify"
    verbose_name = _("Notify")
