"""CRM sync, as the platform sees it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.utils.translation import gettext_lazy as _
from django.utils.translation import gettext_noop

from crmsync import orders
from crmsync.actions import actions, one_message, preview
from crmsync.messages import find as search
from crmsync.monitor import conditions, failures, findings, first_steps, metrics, runbooks
from crmsync.monitor.activity import ACTIVITY
from crmsync.retention import ARCHIVE
from msgplatform.core import flows
from msgplatform.core.alerts import Condition
from msgplatform.core.archive import retention
from msgplatform.core.errors import UNAVAILABLE


class CrmsyncFlow(flows.Flow):
    name = "crmsync"
    title = _("CRM sync")
    # Supervisor stops the highest priority first: the poller stops queueing before handlers end.
    daemons = (
        flows.Daemon(
            "run_sync_handler", priority=530, stop_seconds=75, help="sends records to CRMs"
        ),
        flows.Daemon("run_sync_poller", priority=540, help="reads what changed, and queues it"),
    )
    urls = "crmsync.urls"
    root_urls = "crmsync.root_urls"
    permission = "crmsync.view_lead"
    operate = ("crmsync.change_recoveryentry", "crmsync.operate_crm", "crmsync.operate_policy")
    again_permission = "crmsync.change_recoveryentry"
    scopes = {
        "leads:write": gettext_noop("store, change and delete leads"),
        "leads:read": gettext_noop("read leads and what became of them"),
        "sync:run": gettext_noop("start runs of the CRM sync, and read them"),
    }
    scope_permissions = {
        "leads:write": ("crmsync.add_lead", "crmsync.change_lead", "crmsync.delete_lead"),
        "sync:run": ("crmsync.operate_policy", "crmsync.view_run"),
    }
    search_fields = search.FIELDS
    texts = _("names and fields of leads")
    bulk_actions = {name: action.shown for name, action in actions.ACTIONS.items()}
    queue_pattern = orders.PATTERN
    icons = {
        "LandingPage": "web", "Lead": "person_add", "Source": "database", "Crm": "cloud_sync",
        "Policy": "route", "Run": "directions_run", "Operation": "package_2",
        "Record": "contacts", "RecoveryEntry": "healing", "ExceptionEntry": "error",
    }  # fmt: skip
    activity = ACTIVITY
    runbooks = runbooks.RUNBOOKS
    watched_alerts = conditions.KINDS
    environment_prefix = "CRM_"
    declared_metrics = (*metrics.METRICS, retention.metric(ARCHIVE))

    def status(self) -> flows.Status:
        try:
            return metrics.status()
        except UNAVAILABLE as error:
            return flows.Status(0, None, problem=str(error)[:200])

    def waits(self) -> Iterable[flows.Wait]:
        return metrics.waits()

    def conditions(self) -> Iterable[Condition]:
        return conditions.conditions()

    def failures(self) -> Sequence[flows.Failure]:
        return failures.failures()

    def search(self, query: str, limit: int, personal: bool = True) -> list[flows.Hit]:
        return search.search(query, limit, personal)

    def search_text(
        self, query: str, since: datetime, cursor: str, seconds: float
    ) -> flows.TextFound:
        return search.search_text(query, since, cursor, seconds)

    def page(self, id: str, after: str = "") -> flows.Page | None:
        return search.page(id)

    def send_again(self, id: str, recipient: str, by: str) -> flows.SentAgain:
        return one_message.send_again(id, recipient, by)

    def find(self, filter: Mapping[str, str], cursor: str, limit: int) -> flows.Found:
        return search.find(filter, cursor, limit)

    def bulk_count(self, action: str, filter: Mapping[str, Any]) -> flows.Counted:
        return actions.count(action, filter)

    def bulk_preview(self, action: str, filter: Mapping[str, Any]) -> flows.Preview:
        return preview.shown_before(action, filter)

    def bulk_step(
        self,
        action: str,
        filter: Mapping[str, Any],
        cursor: str,
        limit: int,
        note: flows.Note = flows.unnoted,
    ) -> flows.Step:
        return actions.step(action, filter, cursor, limit, note)

    def bulk_outcome(self, action: str, ids: Sequence[str]) -> dict[str, flows.Ending]:
        return preview.outcome(action, ids)

    def bulk_hits(self, action: str, ids: Sequence[str]) -> list[flows.Hit]:
        return preview.found(action, ids)

    def examine(self) -> Iterable[flows.Finding]:
        return findings.examine()

    def metrics(self) -> Iterable[flows.Sample]:
        return [*metrics.samples(), *retention.samples(ARCHIVE)]

    def first_steps(self) -> Sequence[flows.FirstStep]:
        return first_steps.steps()

    def first_calls(self) -> Sequence[flows.FirstCall]:
        return [first_steps.call()]

    def demo_environment(self) -> Mapping[str, str]:
        # All leads of the demo come from one address; a CRM that fails is probed again soon.
        return {
            "CRM_RATE_ADDRESS": "off", "CRM_RATE_APPKEY": "off", "CRM_BREAKER_SECONDS": "4",
        }  # fmt: skip

    def demo(self, run: flows.DemoRun) -> Mapping[str, Any]:
        from crmsync.demo.run import run_demo

        return run_demo(run)
