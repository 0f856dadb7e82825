"""SMS, as the platform sees it."""

from django.utils.translation import gettext_lazy, gettext_noop
from msgspec.structs import replace

from gateway.actions import resend
from gateway.connections import SMS
from gateway.messages.index import MESSAGES
from gateway.models import SmsGateway
from gateway.monitor import conditions, failures, first_steps, metrics
from gateway.monitor.activity import ACTIVITY
from gateway.moving import SmsKeys
from gateway.person_data import stores
from gateway.pump.retention import ARCHIVE, kept_data
from msgplatform.core.archive import kept
from msgplatform.core.flows.contract import Flow, Link
from msgplatform.core.flows.health import Health
from msgplatform.core.flows.programs import Daemon, Recovery
from msgplatform.core.flows.setup import Setup

# Serves all gateways, except those with a process of their own (`own_processes`).
_SENDER = Daemon("run_sms_sender", priority=580, help="sends to the gateways")


def _own_senders() -> list[Daemon]:
    rows = SmsGateway.objects.filter(own_process=True, enabled=True).order_by("id")
    return [
        replace(_SENDER, arguments=(f"--gateway={name}",))
        for name in rows.values_list("name", flat=True)
    ]


FLOW = Flow(
    name="sms",
    title=gettext_lazy("SMS"),
    # Programs with the highest priority stop first: messages in flight move on to the archive.
    daemons=(
        Daemon("run_data_pump", priority=550, help="moves what is finished to the archive"),
        Daemon("run_report_forwarder", priority=560, help="publishes Reports and MOs"),
        Daemon("run_sms_receiver", priority=570, help="takes Reports and MOs"),
        _SENDER,
    ),
    own_processes=_own_senders,
    recoveries=(Recovery("sms_recover"),),
    urls="gateway.urls",
    root_urls="gateway.api.xmlrpc.endpoint",
    single_intakes=("gateway.api.views.SEND",),
    permission="gateway.view_sgipmt",
    operator_permissions=("gateway.change_sgipmt",),
    resend_permission="gateway.change_sgipmt",
    scopes={
        "sms:write": gettext_noop("send short messages"),
        "sms:read": gettext_noop("read short messages and what became of them"),
    },
    management_scopes={
        "manage:gateways": gettext_noop("set up gateways: over which SMG messages go"),
        "manage:accounts": gettext_noop("set up accounts: with which number a system sends"),
        "manage:tests": gettext_noop("send tests: an event, a text message, a lead; test CRMs"),
    },
    scope_permissions={
        "sms:write": ("gateway.add_sgipmt",),
        "manage:tests": ("gateway.change_sgipmt",),
        "manage:gateways": ("gateway.add_smsgateway", "gateway.change_smsgateway"),
        "manage:accounts": ("gateway.add_smsaccount", "gateway.change_smsaccount"),
    },
    messages=MESSAGES,
    key_stores=(SmsKeys(),),
    person_stores=stores,
    kept=kept_data,
    actions={"resend": resend.ACTION},
    health=Health(
        read_status=metrics.status,
        oldest_waits=metrics.waits,
        conditions=conditions.conditions,
        condition_kinds=conditions.KINDS,
        failures=failures.failures,
        failures_note=gettext_lazy(
            "A Report that calls a message undeliverable is an answer, and no failure:"
        ),
        examine=conditions.examine,
        metrics=lambda: [*metrics.samples(), *kept.samples(ARCHIVE)],
        declared_metrics=(*metrics.METRICS, kept.metric(ARCHIVE)),
        activity=ACTIVITY,
        runbooks=conditions.RUNBOOKS,
        runbook_texts=conditions.RUNBOOK_TEXTS,
    ),
    setup=Setup(first_steps=first_steps.steps, first_calls=lambda: [first_steps.CALL]),
    redis=(SMS,),
    links=(Link(gettext_lazy("Test SMS"), "send_to_mobile", "admin:sms_test",
                ("gateway.view_sgipmt", "gateway.change_sgipmt")),),
    icons={
        "SmsGateway": "cell_tower", "SmsAccount": "badge", "SgipMt": "sms",
        "SgipMo": "call_received", "SgipReport": "task_alt", "SgipUserRpt": "contact_phone",
    },
)  # fmt: skip
