"""Where to act on the alerts of SMS; `runbooks.md` beside this file says what to do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gateway.monitor.failures import GATEWAY
from msgplatform.core.flows.health import Runbook

_GATEWAYS = "admin:gateway_smsgateway_changelist"

RUNBOOKS: Mapping[str, Runbook] = {
    "sms.gateway": GATEWAY.runbook(severity="critical"),
    "sms.failures": Runbook("console:failures"),
    "sms.failing": GATEWAY.runbook(),
    "sms.gateway_settings": GATEWAY.runbook(),
    "sms.account_settings": Runbook(
        "admin:gateway_smsaccount_change", takes_subject=True, model="gateway.SmsAccount"
    ),
    "sms.archive": Runbook("console:overview"),
    "sms.event": Runbook("console:overview"),
    "sms.mo": Runbook(_GATEWAYS),
    "sms.report": Runbook(_GATEWAYS),
    "sms.stranger": Runbook(_GATEWAYS, severity="info"),
    "sms.login": Runbook(_GATEWAYS, severity="info"),
    "sms.replicas": Runbook("console:overview", severity="critical"),
    "sms.retention": Runbook("console:overview"),
}
TEXTS = Path(__file__).with_suffix(".md")
