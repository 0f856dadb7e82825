"""Where to act on the alerts of SMS; `docs/operations.md` says what to do."""

from __future__ import annotations

from collections.abc import Mapping

from msgplatform.core.flows import Runbook

_GATEWAY = "admin:gateway_smsgateway_change"
_GATEWAYS = "admin:gateway_smsgateway_changelist"

RUNBOOKS: Mapping[str, Runbook] = {
    "sms.gateway": Runbook(_GATEWAY, takes_subject=True),
    "sms.failures": Runbook("console:failures"),
    "sms.failing": Runbook(_GATEWAY, takes_subject=True),
    "sms.gateway_settings": Runbook(_GATEWAY, takes_subject=True),
    "sms.account_settings": Runbook("admin:gateway_smsaccount_change", takes_subject=True),
    "sms.archive": Runbook("console:overview"),
    "sms.event": Runbook("console:overview"),
    "sms.mo": Runbook(_GATEWAYS),
    "sms.report": Runbook(_GATEWAYS),
    "sms.stranger": Runbook(_GATEWAYS),
    "sms.login": Runbook(_GATEWAYS),
    "sms.retention": Runbook("console:overview"),
}
