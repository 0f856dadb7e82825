"""What the flow CRM sync will say of the hive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgplatform.core import flows


class HiveFlow(flows.Flow):
    name = "hive"
    title = "Hive"
    urls = "crmsync.urls"
    root_urls = "crmsync.root_urls"
    permission = "crmsync.view_lead"
    scopes = {"leads:write": "store, change and delete leads", "leads:read": "read leads"}

    def status(self) -> flows.Status:
        return flows.Status(backlog=0, oldest_seconds=None)

    def search(self, query: str, limit: int) -> list[flows.Hit]:
        return []

    def page(self, id: str) -> flows.Page | None:
        return None

    def metrics(self) -> list[flows.Sample]:
        return []

    def demo(self, run: flows.DemoRun) -> Mapping[str, Any]:
        return {"accepted": 0, "lost": 0}
