"""CRMs that refuse their credentials: nothing is read for them or sent until somebody looks."""

from __future__ import annotations

from django.db import transaction
from django.utils.translation import gettext as _

from crmsync import models
from crmsync.directory import Crm
from crmsync.directory.crms import fingerprint
from crmsync.models.operations import MAX_MESSAGE
from msgplatform.core import alerts, logging
from msgplatform.core.data import sql

PAUSED = "crm.paused"

log = logging.get(__name__)


def pause(crm: Crm, because: str) -> None:
    """Pause the CRM, unless somebody has corrected what it refused. Raises what a database raises
    that is away."""
    sql.retrying(lambda: _pause(crm, because))
    reconcile()


def _pause(crm: Crm, because: str) -> None:
    with transaction.atomic():
        row = models.Crm.objects.select_for_update().filter(pk=crm.id).first()
        if row is None or row.paused_at or fingerprint(row) != crm.fingerprint:
            return
        row.paused_at, row.paused_because = sql.now(), because[:MAX_MESSAGE]
        row.save(update_fields=["paused_at", "paused_because"])
    log.warning("crm_paused", crm=crm.name)


def reconcile() -> None:
    """An alert is open for each CRM that was paused so, as long as it is."""
    rows = models.Crm.objects.filter(paused_at__isnull=False).exclude(paused_because="")
    alerts.reconcile(
        [PAUSED],
        [
            alerts.Condition(
                f"{PAUSED}:{row.pk}",
                _("The CRM %s refuses the credentials and is paused") % row,
                _("%s Correct its settings in the console and resume it; its records wait.")
                % row.paused_because,
            )
            for row in rows.only("name", "paused_because")
        ],
    )
