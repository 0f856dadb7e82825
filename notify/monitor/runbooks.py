"""Where to act on Notify's alerts; `docs/operations.md` says what to do."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext_lazy as _

from msgplatform.core.flows import Button, Runbook

_SUBSCRIPTION = "admin:notify_bizreceive_change"

DELIVER_NOW = Button(
    _("Deliver now"), "admin:notify_bizreceive_deliver", "notify.operate_bizreceive"
)
RUNBOOKS: Mapping[str, Runbook] = {
    "notify.failing": Runbook(_SUBSCRIPTION, takes_subject=True, button=DELIVER_NOW),
    "notify.failures": Runbook("console:failures"),
    "notify.disabled": Runbook(_SUBSCRIPTION, takes_subject=True),
    "notify.subscription": Runbook(_SUBSCRIPTION, takes_subject=True),
    "notify.own_process": Runbook(_SUBSCRIPTION, takes_subject=True),
    "notify.poison": Runbook("console:failures"),
    "notify.clock": Runbook("console:overview"),
    "notify.archive": Runbook("console:overview"),
    "notify.retention": Runbook("console:overview"),
    "notify.keys.retention": Runbook("console:overview"),
}  # fmt: skip
