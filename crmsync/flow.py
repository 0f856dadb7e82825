"""CRM sync, as the platform sees it."""

from django.utils.translation import gettext_lazy as _, gettext_noop

from crmsync import orders
from crmsync.actions.actions import ACTIONS
from crmsync.messages.index import MESSAGES
from crmsync.models import LeadIdempotency
from crmsync.monitor import conditions, failures, first_steps, metrics
from crmsync.monitor.activity import ACTIVITY
from crmsync.person_data import stores
from crmsync.retention import ARCHIVE, kept_data
from msgplatform.core import sandbox
from msgplatform.core.archive import kept
from msgplatform.core.flows.contract import Flow, Link
from msgplatform.core.flows.health import Health
from msgplatform.core.flows.programs import Daemon, Recovery
from msgplatform.core.flows.setup import Setup
from msgplatform.core.intake.moved_keys import TableKeys
from msgplatform.core.personal import PERMISSION as PERSONAL

FLOW = Flow(
    name="crmsync",
    title=_("CRM sync"),
    # Supervisor stops the highest priority first: the poller stops queueing before handlers end.
    daemons=(
        Daemon(
            "run_sync_handler", priority=530, stop_seconds=75, help="sends records to CRMs"
        ),
        Daemon("run_sync_poller", priority=540, help="reads what changed, and queues it"),
    ),
    recoveries=(Recovery("sync_recover", ("--since", "{began_at}")),),
    urls="crmsync.urls",
    root_urls="crmsync.root_urls",
    permission="crmsync.view_lead",
    operator_permissions=(
        "crmsync.change_recoveryentry", "crmsync.operate_crm", "crmsync.operate_policy",
    ),
    resend_permission="crmsync.change_recoveryentry",
    scopes={
        "leads:write": gettext_noop("store, change and delete leads"),
        "leads:read": gettext_noop("read leads and what became of them"),
        "sync:run": gettext_noop("start runs of the CRM sync, and read them"),
    },
    management_scopes={
        "manage:landing-pages": gettext_noop("set up landing pages: the forms that take leads"),
        "manage:crms": gettext_noop("set up CRMs: the systems that get the leads"),
        "manage:sources": gettext_noop("set up sources: the tables whose changes are read"),
        "manage:tests": gettext_noop("send tests: an event, a text message, a lead; test CRMs"),
        "manage:sandbox": gettext_noop("read what sandboxes got, and set how they answer"),
        "manage:policies": gettext_noop("set up policies: which source is carried to which CRM"),
    },
    scope_permissions={
        "manage:tests": ("crmsync.change_crm",),
        "manage:sandbox": ("crmsync.view_record", "crmsync.operate_crm", PERSONAL),
        "manage:crms": ("crmsync.add_crm", "crmsync.change_crm"),
        "manage:sources": ("crmsync.add_source", "crmsync.change_source", "crmsync.delete_source"),
        "manage:policies": ("crmsync.add_policy", "crmsync.change_policy"),
        "manage:landing-pages": ("crmsync.add_landingpage", "crmsync.change_landingpage"),
        "leads:write": ("crmsync.add_lead", "crmsync.change_lead", "crmsync.delete_lead"),
        "sync:run": ("crmsync.operate_policy", "crmsync.view_run"),
    },
    messages=MESSAGES,
    key_stores=(TableKeys(LeadIdempotency),),
    actions=ACTIONS,
    person_stores=stores,
    kept=kept_data,
    health=Health(
        read_status=metrics.status,
        oldest_waits=metrics.waits,
        conditions=conditions.conditions,
        condition_kinds=conditions.KINDS,
        failures=failures.failures,
        examine=conditions.examine,
        metrics=lambda: [*metrics.samples(), *kept.samples(ARCHIVE)],
        declared_metrics=(*metrics.METRICS, kept.metric(ARCHIVE)),
        activity=ACTIVITY,
        runbooks=conditions.RUNBOOKS,
        runbook_texts=conditions.RUNBOOK_TEXTS,
    ),
    setup=Setup(first_steps=first_steps.steps, first_calls=lambda: [first_steps.call()]),
    queue_pattern=orders.PATTERN,
    links=(
        Link(
            _("Records"), "contacts", "console:find", ("crmsync.view_record", "crmsync.view_lead"),
            args=("crmsync",), query="rows=records",
        ),
        *([Link(_("Sandbox"), "science", "admin:crmsync_sandboxes", ("crmsync.view_crm",))]
          if sandbox.is_on() else []),
    ),
    icons={
        "LandingPage": "web", "Lead": "person_add", "Source": "database", "Crm": "cloud_sync",
        "Policy": "route", "Run": "directions_run", "Operation": "package_2",
        "RecoveryEntry": "healing", "ExceptionEntry": "error",
    },
)  # fmt: skip
