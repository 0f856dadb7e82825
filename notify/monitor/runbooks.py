"""The runbooks of Notify's alerts: one sentence each; `docs/operations.md` says more."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext_lazy as _

from msgplatform.core.flows import Button, Runbook

_SUBSCRIPTION = "admin:notify_bizreceive_change"

DELIVER_NOW = Button(
    _("Deliver now"), "admin:notify_bizreceive_deliver", "notify.operate_bizreceive"
)
RUNBOOKS: Mapping[str, Runbook] = {
    "notify.failing": Runbook(
        _("Look at the subscription's last answers: is the consumer down, or does it refuse?"),
        _SUBSCRIPTION, takes_subject=True, button=DELIVER_NOW,
    ),
    "notify.failures": Runbook(
        _("See whether the consumer works again; if so, send its deliveries again from Failures."),
        "console:failures",
    ),
    "notify.disabled": Runbook(
        _("Read the reason on the subscription's page, repair the consumer, and resume it there."),
        _SUBSCRIPTION, takes_subject=True,
    ),
    "notify.subscription": Runbook(
        _("Correct the setting that the alert names in the subscription's or the consumer's form."),
        _SUBSCRIPTION, takes_subject=True,
    ),
    "notify.own_process": Runbook(
        _("Start the process that the alert names, or switch off “own process”."),
        _SUBSCRIPTION, takes_subject=True,
    ),
    "notify.poison": Runbook(
        _("Read the error: the platform is at fault. Report it, then send the delivery again."),
        "console:failures",
    ),
    "notify.clock": Runbook(
        _("Set the clock of the machine that the alert names: its time synchronisation is off."),
        "console:overview",
    ),
    "notify.archive": Runbook(
        _("Look at the archive's database: space, permissions, and whether it answers."),
        "console:overview",
    ),
    "notify.retention": Runbook(
        _("Look at the archive's database: why can old rows not be deleted?"), "console:overview"
    ),
    "notify.keys.retention": Runbook(
        _("Look at the database: why can old idempotency keys not be deleted?"), "console:overview"
    ),
}  # fmt: skip
