"""Runbooks of the alerts of SMS: one sentence each; `docs/operations.md` says more."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext_lazy as _

from msgplatform.core.flows import Runbook

_GATEWAY = "admin:gateway_smsgateway_change"
_GATEWAYS = "admin:gateway_smsgateway_changelist"

RUNBOOKS: Mapping[str, Runbook] = {
    "sms.gateway": Runbook(
        _("Read why the connection fails: the network, the login, or no sender that runs?"),
        _GATEWAY, takes_subject=True,
    ),
    "sms.given_up": Runbook(
        _("Look the result code up with the operator, repair the cause, and send them again from "
          "Failures."),
        "console:failures",
    ),
    "sms.failing": Runbook(
        _("See on the gateway's page what it answers; if others can take the numbers, switch it "
          "off."),
        _GATEWAY, takes_subject=True,
    ),
    "sms.gateway_settings": Runbook(
        _("Correct the setting that the alert names in the gateway's form."),
        _GATEWAY, takes_subject=True,
    ),
    "sms.account_settings": Runbook(
        _("Correct the setting that the alert names in the account's form."),
        "admin:gateway_smsaccount_change", takes_subject=True,
    ),
    "sms.archive": Runbook(
        _("Read the error: the message stays in Redis and is tried again until it is archived."),
        "console:overview",
    ),
    "sms.event": Runbook(
        _("Read the error: the ending of this message did not reach its business system."),
        "console:overview",
    ),
    "sms.mo": Runbook(
        _("Read the error: ask the operator what it sent, for this message cannot be read."),
        _GATEWAYS,
    ),
    "sms.report": Runbook(
        _("Compare the gateway's “operator”: Reports of another gateway's messages are not "
          "taken."),
        _GATEWAYS,
    ),
    "sms.stranger": Runbook(
        _("If the address is the operator's, add it to the gateway's networks."), _GATEWAYS
    ),
    "sms.login": Runbook(
        _("If the address is the operator's, compare the SMG's login name and password."),
        _GATEWAYS,
    ),
    "sms.retention": Runbook(
        _("Look at the database: why can old messages not be deleted?"), "console:overview"
    ),
}  # fmt: skip
