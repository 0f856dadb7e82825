"""Pause a CRM that refuses its credentials: nothing is read for it, and nothing sent.

working ── the CRM refuses its credentials ──> paused
paused ── Resume in the console, if the CRM passes the test ──> working
"""

from __future__ import annotations

from django.db import transaction
from django.utils.translation import gettext_noop as _

from crmsync import models
from crmsync.directory import Crm, fingerprint
from crmsync.models.operations import MAX_MESSAGE
from msgplatform.core import alerts, logging
from msgplatform.core.data import sql, transactions
from msgplatform.core.lazy_text import lazy_message

PAUSED = "crm.paused"

log = logging.get(__name__)


def pause(crm: Crm, because: str) -> None:
    """Pause the CRM, unless the refused settings have been corrected meanwhile.

    Raises what an unavailable database raises.
    """

    def once() -> None:
        with transaction.atomic():
            row = models.Crm.objects.select_for_update().filter(pk=crm.id).first()
            # Another fingerprint: the refused settings have been replaced by now.
            if row is None or row.paused_at or fingerprint(row) != crm.fingerprint:
                return
            row.paused_at, row.paused_because = sql.now(), because[:MAX_MESSAGE]
            row.save(update_fields=["paused_at", "paused_because"])
        log.warning("crm_paused", crm=crm.name)

    transactions.retrying(once)
    reconcile()


def reconcile() -> None:
    """Keep an alert open for each CRM that was paused by its refusal, as long as it is paused."""
    rows = models.Crm.objects.filter(paused_at__isnull=False).exclude(paused_because="")
    alerts.reconcile(
        [PAUSED],
        [
            alerts.Condition(
                f"{PAUSED}:{row.pk}",
                lazy_message(
                    _("The CRM %(name)s refuses the credentials and is paused"), name=str(row)
                ),
                lazy_message(
                    _(
                        "%(why)s Correct its settings in the console and resume it; its records "
                        "wait."
                    ),
                    why=row.paused_because,
                ),
            )
            for row in rows.only("name", "paused_because")
        ],
    )
