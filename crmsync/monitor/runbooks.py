"""Runbooks of the alerts of CRM sync: one sentence each; `docs/operations.md` says more."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext_lazy as _

from msgplatform.core.flows import Runbook

_CRM, _POLICY = "admin:crmsync_crm_change", "admin:crmsync_policy_change"
_RECOVERY = "admin:crmsync_recoveryentry_changelist"

RUNBOOKS: Mapping[str, Runbook] = {
    "crm.stalled": Runbook(
        _("Look at the CRM's calls in the exception log, and whether run_sync_handler runs."),
        _CRM, takes_subject=True,
    ),
    "crm.paused": Runbook(
        _("Correct the credentials in the CRM's form, test them there, and press Resume."),
        _CRM, takes_subject=True,
    ),
    "crm.unusable": Runbook(
        _("Correct the setting that the alert names in the CRM's form."), _CRM, takes_subject=True
    ),
    "crm.fault": Runbook(
        _("Read the error: the adapter has a fault. Correct it, then try the records again."),
        _RECOVERY,
    ),
    "crm.policy": Runbook(
        _("Correct the mapping or the schedule in the policy's form."), _POLICY, takes_subject=True
    ),
    "crm.source": Runbook(
        _("Test the source from its form: does its database answer, and may we read the table?"),
        _POLICY, takes_subject=True,
    ),
    "crm.horizon": Runbook(
        _("Find the transaction that is open at the source, and commit it or end its session."),
        _POLICY, takes_subject=True,
    ),
    "crm.dead": Runbook(
        _("Read in the recovery log what the CRM refused. Correct the data and try again there, or "
          "correct the mapping and start a run of everything."),
        _RECOVERY,
    ),
    "crm.recovery": Runbook(
        _("Decide about the open entries: try again, edit or dismiss them."), _RECOVERY
    ),
    "crmsync.given_up": Runbook(
        _("Read what the CRM refused on Failures. Correct the data and try the records again "
          "there, or correct the mapping and start a run of everything."),
        "console:failures",
    ),
    "crmsync.retention": Runbook(
        _("Look at the database: why can old operations not be deleted?"), "console:overview"
    ),
}  # fmt: skip
