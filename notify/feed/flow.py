"""Feed as the platform sees it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.utils.translation import gettext_lazy as _
from django.utils.translation import gettext_noop

from msgplatform.core import flows
from msgplatform.core.alerts import Condition
from msgplatform.core.archive import retention
from msgplatform.core.archive.partitions import partitions_of
from msgplatform.core.errors import UNAVAILABLE
from notify.feed.actions import actions, one_message
from notify.feed.messages import find as search
from notify.feed.messages.hits import hits
from notify.feed.monitor import conditions, failures, first_steps, metrics, runbooks
from notify.feed.monitor.activity import ACTIVITY
from notify.feed.retention import ARCHIVES, ENTRIES


class FeedFlow(flows.Flow):
    name = "feed"
    title = _("Feed")
    daemons = (
        flows.Daemon("run_feed_dispatcher", priority=540, help="writes posts into timelines"),
        flows.Daemon("run_feed_cleaner", priority=545, help="deletes what is no longer needed"),
    )
    urls = "notify.feed.urls"
    single_intakes = ("notify.feed.api.post_views.POST",)
    permission = "feed.view_feed"
    operate = ("feed.change_eventqueue",)
    again_permission = "feed.change_eventqueue"
    scopes = {
        "feed:write": gettext_noop("post, edit and delete posts; change relations"),
        "feed:read": gettext_noop("read timelines, posts and relations"),
    }
    scope_permissions = {"feed:write": ("feed.add_feed", "feed.change_feed", "feed.delete_feed")}
    search_fields = search.FIELDS
    texts = _("posts")
    bulk_actions = actions.ACTIONS
    icons = {"Feed": "dynamic_feed", "EventQueue": "queue"}
    links = (
        flows.Link(
            _("Users"), "group", "admin:feed_users", ("feed.view_feed", "feed.view_feeduser")
        ),
        flows.Link(_("Scheduler"), "speed", "admin:feed_scheduler", ("feed.view_eventqueue",)),
    )
    activity = ACTIVITY
    runbooks = runbooks.RUNBOOKS
    given_up_alert = conditions.SET_ASIDE
    watched_alerts = conditions.KINDS
    environment_prefix = "FEED_"
    declared_metrics = (*metrics.METRICS, *map(retention.metric, ARCHIVES))

    def status(self) -> flows.Status:
        try:
            return metrics.status()
        except UNAVAILABLE as error:
            return flows.Status(0, None, problem=str(error)[:200])

    def failures(self) -> Sequence[flows.Failure]:
        return failures.failures()

    def search(self, query: str, limit: int, personal: bool = True) -> list[flows.Hit]:
        return search.search(query, limit)

    def search_text(
        self, query: str, since: datetime, cursor: str, seconds: float
    ) -> flows.TextFound:
        return search.search_text(query, since, cursor, seconds)

    def page(self, id: str, after: str = "") -> flows.Page | None:
        return search.page(id)

    def send_again(self, id: str, recipient: str, by: str) -> flows.SentAgain:
        return one_message.send_again(id, recipient)

    def find(self, filter: Mapping[str, str], cursor: str, limit: int) -> flows.Found:
        return search.find(filter, cursor, limit)

    def bulk_count(self, action: str, filter: Mapping[str, Any]) -> flows.Counted:
        return actions.count(action, filter)

    def bulk_preview(self, action: str, filter: Mapping[str, Any]) -> flows.Preview:
        return actions.shown_before(action, filter)

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
        return actions.outcome(ids)

    def bulk_hits(self, action: str, ids: Sequence[str]) -> list[flows.Hit]:
        return list(hits([int(qid) for qid in ids]).values())

    def conditions(self) -> Iterable[Condition]:
        return conditions.conditions()

    def examine(self) -> Iterable[flows.Finding]:
        return conditions.examine()

    def metrics(self) -> Iterable[flows.Sample]:
        yield from metrics.samples()
        for archive in ARCHIVES:
            # Without months all entries are read to find the oldest; the cleaner does so at times.
            if archive is not ENTRIES or any(p.bound for p in partitions_of(archive.tables[0])):
                yield from retention.samples(archive)

    def first_steps(self) -> Sequence[flows.FirstStep]:
        return first_steps.steps()

    def first_calls(self) -> Sequence[flows.FirstCall]:
        return first_steps.CALLS

    def demo_environment(self) -> Mapping[str, str]:
        # So low that even in a small town authors are merged and timelines trimmed.
        return {
            "FEED_READ_FANOUT_ABOVE": "400", "FEED_WRITE_FANOUT_BELOW": "350",
            "FEED_TIMELINE_LENGTH": "100", "FEED_REBUILD_LENGTH": "50", "FEED_CLEAN_SECONDS": "1",
            "API_RATE_READ": "off",
        }  # fmt: skip

    def demo(self, run: flows.DemoRun) -> Mapping[str, Any]:
        from notify.feed.demo.run import run_demo

        return run_demo(run)
