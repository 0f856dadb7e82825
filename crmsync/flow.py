"""CRM sync, as the platform sees it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.utils.translation import gettext as _

from crmsync.models import LandingPage
from crmsync.search import find
from msgplatform.core import flows
from msgplatform.core.daemons.daemon import AWAY


class CrmSyncFlow(flows.Flow):
    name = "crmsync"
    title = "CRM sync"
    urls = "crmsync.urls"
    root_urls = "crmsync.root_urls"
    permission = "crmsync.view_lead"
    scopes = {
        "leads:write": "store, change and delete leads",
        "leads:read": "read leads",
    }
    icons = {"LandingPage": "web", "Lead": "person_add"}
    environment_prefix = "CRM_"

    def status(self) -> flows.Status:
        """Nothing waits yet: leads are stored, no CRM takes them."""
        try:
            pages = LandingPage.objects.filter(enabled=True).count()
        except AWAY as error:
            return flows.Status(0, None, problem=str(error)[:200])
        return flows.Status(0, None, {_("landing pages"): pages})

    def search(self, query: str, limit: int) -> list[flows.Hit]:
        return find.search(query, limit)

    def page(self, id: str) -> flows.Page | None:
        return find.page(id)

    def metrics(self) -> Iterable[flows.Sample]:
        pages = LandingPage.objects.filter(enabled=True).count()
        return [flows.Sample("crmsync_landing_pages", pages, help="Landing pages that take leads")]

    def demo(self, run: flows.DemoRun) -> Mapping[str, Any]:
        from crmsync.demo.run import run_demo

        return run_demo(run)
