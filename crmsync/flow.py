"""CRM sync, as the platform sees it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from crmsync import queues
from crmsync.bulk import actions
from crmsync.monitor import findings, metrics
from crmsync.retention import ARCHIVE
from crmsync.search import find as search
from msgplatform.core import flows
from msgplatform.core.archive import retention
from msgplatform.core.errors import UNAVAILABLE


class CrmsyncFlow(flows.Flow):
    name = "crmsync"
    title = "CRM sync"
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
    scopes = {
        "leads:write": "store, change and delete leads",
        "leads:read": "read leads and what became of them",
        "sync:run": "start runs of the CRM sync, and read them",
    }
    search_fields = search.FIELDS
    bulk_actions = {name: action.shown for name, action in actions.ACTIONS.items()}
    queue_pattern = queues.PATTERN
    icons = {
        "LandingPage": "web", "Lead": "person_add", "Source": "database", "Crm": "cloud_sync",
        "Policy": "route", "Run": "directions_run", "Operation": "package_2",
        "Record": "contacts", "RecoveryEntry": "healing", "ExceptionEntry": "error",
    }  # fmt: skip
    environment_prefix = "CRM_"

    def status(self) -> flows.Status:
        try:
            return metrics.status()
        except UNAVAILABLE as error:
            return flows.Status(0, None, problem=str(error)[:200])

    def waits(self) -> Iterable[flows.Wait]:
        return metrics.waits()

    def search(self, query: str, limit: int) -> list[flows.Hit]:
        return search.search(query, limit)

    def page(self, id: str) -> flows.Page | None:
        return search.page(id)

    def find(self, filter: Mapping[str, str], cursor: str, limit: int) -> flows.Found:
        return search.find(filter, cursor, limit)

    def bulk_count(self, action: str, filter: Mapping[str, Any]) -> flows.Counted:
        return actions.count(action, filter)

    def bulk_step(
        self, action: str, filter: Mapping[str, Any], cursor: str, limit: int
    ) -> flows.Step:
        return actions.step(action, filter, cursor, limit)

    def examine(self) -> Iterable[flows.Finding]:
        return findings.examine()

    def metrics(self) -> Iterable[flows.Sample]:
        return [*metrics.samples(), *retention.samples(ARCHIVE)]

    def demo_environment(self) -> Mapping[str, str]:
        # All leads of the demo come from one address; a CRM that fails is probed again soon.
        return {
            "CRM_RATE_ADDRESS": "off", "CRM_RATE_APPKEY": "off", "CRM_BREAKER_SECONDS": "4",
        }  # fmt: skip

    def demo(self, run: flows.DemoRun) -> Mapping[str, Any]:
        from crmsync.demo.run import run_demo

        return run_demo(run)
