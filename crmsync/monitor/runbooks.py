"""Where to act on the alerts of CRM sync; `docs/operations.md` says what to do."""

from __future__ import annotations

from collections.abc import Mapping

from msgplatform.core.flows import Runbook

_CRM, _POLICY = "admin:crmsync_crm_change", "admin:crmsync_policy_change"
_RECOVERY = "admin:crmsync_recoveryentry_changelist"

RUNBOOKS: Mapping[str, Runbook] = {
    "crm.stalled": Runbook(_CRM, takes_subject=True),
    "crm.paused": Runbook(_CRM, takes_subject=True),
    "crm.unusable": Runbook(_CRM, takes_subject=True),
    "crm.fault": Runbook(_RECOVERY),
    "crm.policy": Runbook(_POLICY, takes_subject=True),
    "crm.source": Runbook(_POLICY, takes_subject=True),
    "crm.horizon": Runbook(_POLICY, takes_subject=True),
    "crm.dead": Runbook(_RECOVERY),
    "crm.recovery": Runbook(_RECOVERY),
    "crmsync.failures": Runbook("console:failures"),
    "crmsync.retention": Runbook("console:overview"),
}
