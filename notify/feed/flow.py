"""The declaration of Feed for the platform."""

from collections.abc import Sequence

from django.utils.translation import gettext_lazy as _, gettext_noop

from msgplatform.core.archive import kept
from msgplatform.core.flows.contract import Flow, Link
from msgplatform.core.flows.health import Health
from msgplatform.core.flows.programs import Daemon
from msgplatform.core.flows.setup import Setup
from msgplatform.core.intake.moved_keys import TableKeys
from notify.feed.actions.actions import ACTIONS
from notify.feed.messages.index import MESSAGES
from notify.feed.models import Feed, FeedIdempotency
from notify.feed.monitor import conditions, failures, first_steps, metrics
from notify.feed.monitor.activity import ACTIVITY
from notify.feed.person_data import stores
from notify.feed.retention import ARCHIVES, ENTRIES, EVENTS, keep_entries, keep_events


def kept_data() -> Sequence[kept.KeptData]:
    """Feed's data for the page Retention."""
    return (
        kept.of_table(_("handled events"), EVENTS.tables[0], keep_events, "FEED_KEEP_EVENT_HOURS"),
        kept.of_table(
            _("entries of timelines"), ENTRIES.tables[0], keep_entries, "FEED_KEEP_ENTRY_DAYS"
        ),
        kept.of_ids(_("posts and relations"), Feed, kept.for_ever),
    )


FLOW = Flow(
    name="feed",
    title=_("Feed"),
    daemons=(
        Daemon("run_feed_dispatcher", priority=540, help="writes posts into timelines"),
        Daemon("run_feed_cleaner", priority=545, help="deletes what is no longer needed"),
    ),
    urls="notify.feed.urls",
    single_intakes=("notify.feed.api.post_views.POST",),
    permission="feed.view_feed",
    operator_permissions=("feed.change_eventqueue",),
    resend_permission="feed.change_eventqueue",
    scopes={
        "feed:write": gettext_noop("post, edit and delete posts; change relations"),
        "feed:read": gettext_noop("read timelines, posts and relations"),
    },
    scope_permissions={"feed:write": ("feed.add_feed", "feed.change_feed", "feed.delete_feed")},
    messages=MESSAGES,
    key_stores=(TableKeys(FeedIdempotency),),
    person_stores=stores,
    kept=kept_data,
    actions=ACTIONS,
    health=Health(
        read_status=metrics.status,
        conditions=conditions.conditions,
        condition_kinds=conditions.KINDS,
        failures=conditions.failures,
        failures_alert=failures.SET_ASIDE,
        examine=conditions.examine,
        metrics=metrics.samples,
        declared_metrics=(*metrics.METRICS, *map(kept.metric, ARCHIVES)),
        activity=ACTIVITY,
        runbooks=conditions.RUNBOOKS,
        runbook_texts=conditions.RUNBOOK_TEXTS,
    ),
    setup=Setup(first_steps=first_steps.steps, first_calls=lambda: first_steps.CALLS),
    icons={"Feed": "dynamic_feed", "EventQueue": "queue"},
    links=(
        Link(_("Users"), "group", "admin:feed_users", ("feed.view_feed", "feed.view_feeduser")),
        Link(_("Scheduler"), "speed", "admin:feed_scheduler", ("feed.view_eventqueue",)),
    ),
)  # fmt: skip
