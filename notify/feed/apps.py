from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class FeedConfig(AppConfig):
    """Writes posts into the timelines of friends and followers."""

    name = "notify.feed"
    label = "feed"
    verbose_name = _("Feed")

    def ready(self) -> None:
        from msgplatform.core import flows
        from notify.feed import checks  # noqa: F401
        from notify.feed.flow import FLOW

        flows.register(FLOW)
