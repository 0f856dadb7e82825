"""The state of Feed right now, for the overview and `/metrics`."""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta

from django.utils.translation import gettext as _

from msgplatform.core.archive import kept
from msgplatform.core.archive.partitions import partitions_of
from msgplatform.core.connections import RedisError
from msgplatform.core.data import sql
from msgplatform.core.flows.health import Status
from msgplatform.core.flows.metric import Metrics, Sample
from notify.feed import presence
from notify.feed.models import EventQueue
from notify.feed.monitor import backlog, counters
from notify.feed.retention import ARCHIVES, ENTRIES

_HOUR = timedelta(hours=1)
_Status = EventQueue.Status
_UP_TO = f"counted up to {backlog.MAX_COUNTED:,}"


def status() -> Status:
    """Feed's status. The backlog: events that wait or are in slices, without set-aside events."""
    now = sql.now()
    by_status: Counter[int] = Counter()
    for (_topic, event_status), count in backlog.counts().items():
        by_status[event_status] += count
    facts: dict[str, int | float | str] = {}
    if (count := by_status[_Status.WAITING]) >= backlog.MAX_COUNTED:
        facts[str(_Status.WAITING.label)] = _("%d or more") % count
    ages = backlog.oldest(now)
    return Status(
        sum(by_status[open_status] for open_status in EventQueue.OPEN),
        max(ages.values(), default=None),
        facts,
        oldest_by=ages,
    )


# -- /metrics ------------------------------------------------------------------------------------
METRICS = Metrics()
_EVENTS = METRICS.gauge("feed_events", f"Unhandled events; {_UP_TO}", "topic", "status")
_OLDEST = METRICS.gauge(
    "feed_oldest_seconds", "Age of a topic's oldest event that is still to be handled", "topic"
)
# Gauges, because the counters of the database are deleted after a while.
_LAST_HOUR = METRICS.gauge(
    "feed_last_hour",
    "Work of the last hour: posts accepted, events handled and set aside, entries written, posts "
    "of authors who are merged at read",
    "topic",
    "what",
)
_SCHEDULER_UP = METRICS.gauge("feed_scheduler_up", "1 while a dispatcher decides on the pace")
_SHARE = METRICS.gauge("feed_share_ratio", "Share of their time that dispatchers work, 0 to 1")
_BATCH = METRICS.gauge("feed_batch_events", "Maximum of events in a batch")
_LOAD = METRICS.gauge("feed_load_ratio", "Load by others; 1 is the maximum")
_STATEMENTS = METRICS.gauge("feed_statements", "Running statements of others")
_CPU = METRICS.gauge("feed_cpu", "Share of busy processors of the scheduler's machine, 0 to 1")
_PROBE = METRICS.gauge(
    "feed_probe_seconds", "Time of the database for a small statement: now, and at rest", "when"
)


def samples() -> Iterator[Sample]:
    """Everything that `/metrics` says about Feed."""
    now = sql.now()
    for (topic, event_status), count in backlog.counts().items():
        yield _EVENTS.of(count, topic=topic, status=_Status(event_status).name.lower())
    ages = backlog.oldest(now)
    for topic in EventQueue.Topic.values:
        yield _OLDEST.of(ages.get(topic, 0.0), topic=topic)
    hour = counters.since(now - _HOUR)
    for kind in counters.KINDS:
        for topic in EventQueue.Topic.values:
            yield _LAST_HOUR.of(hour[topic, kind], topic=topic, what=kind)
    with suppress(RedisError):  # the other metrics need no Redis
        decision = presence.read_decision()
        yield _SCHEDULER_UP.of(decision is not None)
        if decision is not None:
            yield _SHARE.of(decision.share)
            yield _BATCH.of(decision.events)
            yield _LOAD.of(decision.load)
            yield _STATEMENTS.of(decision.statements)
            yield _CPU.of(decision.cpu)
            yield _PROBE.of(decision.latency / 1000, when="now")
            yield _PROBE.of(decision.baseline / 1000, when="at_rest")
    for archive in ARCHIVES:
        # Without partitions the oldest entry costs a read of the whole table, so it is left out.
        if archive is not ENTRIES or any(p.bound for p in partitions_of(archive.tables[0])):
            yield from kept.samples(archive)
