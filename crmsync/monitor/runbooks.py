"""Where to act on the alerts of CRM sync; `runbooks.md` beside this file says what to do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from crmsync.monitor.failures import CRM
from msgplatform.core.flows.health import Runbook

_POLICY = "admin:crmsync_policy_change"
_RECOVERY = "admin:crmsync_recoveryentry_changelist"

RUNBOOKS: Mapping[str, Runbook] = {
    "crm.stalled": CRM.runbook(),
    "crm.paused": CRM.runbook(),
    "crm.unusable": CRM.runbook(),
    "crm.fault": Runbook(_RECOVERY),
    "crm.policy": Runbook(_POLICY, takes_subject=True),
    "crm.source": Runbook(_POLICY, takes_subject=True),
    "crm.horizon": Runbook(_POLICY, takes_subject=True),
    "crm.dead": Runbook(_RECOVERY),
    "crm.recovery": Runbook(_RECOVERY),
    "crmsync.failures": Runbook("console:failures"),
    "crmsync.retention": Runbook("console:overview"),
}
TEXTS = Path(__file__).with_suffix(".md")
