"""Feed as the platform sees it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.utils.translation import gettext_lazy as _

from msgplatform.core import flows
from msgplatform.core.errors import UNAVAILABLE
from notify.feed.bulk import actions
from notify.feed.monitor import alert_conditions, metrics
from notify.feed.search import find as search


class FeedFlow(flows.Flow):
    name = "feed"
    title = "Feed"
    daemons = (
        flows.Daemon("run_feed_dispatcher", priority=540, help="writes posts into timelines"),
        flows.Daemon("run_feed_cleaner", priority=545, help="deletes what is no longer needed"),
    )
    urls = "notify.feed.urls"
    single_intakes = ("notify.feed.api.post_views.POST",)
    permission = "feed.view_feed"
    scopes = {
        "feed:write": "post, edit and delete posts; change relations",
        "feed:read": "read timelines, posts and relations",
    }
    search_fields = search.FIELDS
    bulk_actions = actions.ACTIONS
    icons = {"Feed": "dynamic_feed", "EventQueue": "queue"}
    links = (
        flows.Link(
            _("Users"), "group", "admin:feed_users", ("feed.view_feed", "feed.view_feeduser")
        ),
        flows.Link(_("Scheduler"), "speed", "admin:feed_scheduler", ("feed.view_eventqueue",)),
    )
    environment_prefix = "FEED_"

    def status(self) -> flows.Status:
        try:
            return metrics.status()
        except UNAVAILABLE as error:
            return flows.Status(0, None, problem=str(error)[:200])

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
        return alert_conditions.examine()

    def metrics(self) -> Iterable[flows.Sample]:
        return metrics.samples()

    def demo_environment(self) -> Mapping[str, str]:
        # So low that even in a small town authors are merged and timelines trimmed.
        return {
            "FEED_MERGE_ABOVE": "400", "FEED_PUSH_BELOW": "350", "FEED_TIMELINE_LENGTH": "100",
            "FEED_REBUILD_LENGTH": "50", "FEED_CLEAN_SECONDS": "1", "API_RATE_READ": "off",
        }  # fmt: skip

    def demo(self, run: flows.DemoRun) -> Mapping[str, Any]:
        from notify.feed.demo.run import run_demo

        return run_demo(run)
