"""Feed, as the platform sees it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.utils.translation import gettext_lazy as _

from msgplatform.core import flows
from notify.feed.models import EventQueue


class FeedFlow(flows.Flow):
    name = "feed"
    title = "Feed"
    daemons = (
        flows.Daemon("run_feed_dispatcher", priority=540, help="writes posts into timelines"),
        flows.Daemon("run_feed_cleaner", priority=545, help="deletes what is no longer needed"),
    )
    urls = "notify.feed.urls"
    permission = "feed.view_feed"
    scopes = {
        "feed:write": "post, edit and delete posts; change relations",
        "feed:read": "read timelines, posts and relations",
    }
    icons = {"Feed": "dynamic_feed", "EventQueue": "queue"}
    links = (
        flows.Link(
            _("Users"), "group", "admin:feed_users", ("feed.view_feed", "feed.view_feeduser")
        ),
        flows.Link(_("Scheduler"), "speed", "admin:feed_scheduler", ("feed.view_eventqueue",)),
    )
    environment_prefix = "FEED_"

    def status(self) -> flows.Status:
        return flows.Status(0, None)

    def search(self, query: str, limit: int) -> list[flows.Hit]:
        return []

    def page(self, id: str) -> flows.Page | None:
        return None

    def metrics(self) -> Iterable[flows.Sample]:
        return ()

    def demo(self, run: flows.DemoRun) -> Mapping[str, Any]:
        return {"ok": True, "accepted": 0, "lost": 0, "posts": EventQueue.objects.count()}
