from django.apps import AppConfig
from django.db.models.signals import post_migrate
from django.utils.translation import gettext_lazy as _


class CrmsyncConfig(AppConfig):
    """Leads from landing pages into CRMs."""

    name = "crmsync"
    verbose_name = _("CRM sync")

    def ready(self) -> None:
        from crmsync import checks  # noqa: F401
        from crmsync.flow import FLOW
        from crmsync.models import lead_triggers
        from msgplatform.core import flows

        flows.register(FLOW)
        post_migrate.connect(lead_triggers.renew, sender=self, dispatch_uid="crmsync.triggers")
