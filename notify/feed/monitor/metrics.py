"""The state of Feed right now, for the overview and `/metrics`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

from django.utils.translation import gettext as _

from msgplatform.core.connections import RedisError
from msgplatform.core.data import sql
from msgplatform.core.flows import Sample, Status
from notify.feed import pace_status
from notify.feed.models import EventQueue
from notify.feed.monitor import backlog, counters

_HOUR = timedelta(hours=1)
_Status = EventQueue.Status
_UP_TO = f"counted up to {backlog.MOST:,}"


def status() -> Status:
    """The backlog is what waits and what is in slices, without events that were set aside."""
    now = sql.now()
    by_status: Counter[int] = Counter()
    for (_topic, event_status), count in backlog.waiting().items():
        by_status[event_status] += count
    hour: Counter[str] = Counter()
    for (_topic, what), count in counters.since(now - _HOUR).items():
        hour[what] += count
    facts: dict[str, int | float | str] = {
        str(_Status(one).label): count if count < backlog.MOST else _("%d or more") % count
        for one, count in by_status.items()
        if count
    }
    facts[_("handled in the last hour")] = hour[counters.HANDLED]
    facts[_("entries in the last hour")] = hour[counters.ENTRIES]
    ages = backlog.oldest(now)
    return Status(
        sum(by_status[one] for one in backlog.OPEN), max(ages.values(), default=None), facts
    )


def samples() -> Iterator[Sample]:
    """Everything that `/metrics` says about Feed."""
    now = sql.now()
    for (topic, event_status), count in backlog.waiting().items():
        yield Sample(
            "feed_events", count, {"topic": topic, "status": _Status(event_status).name.lower()},
            f"Events that are not handled, by topic and status; {_UP_TO}",
        )  # fmt: skip
    ages = backlog.oldest(now)
    for topic in backlog.TOPICS:
        yield Sample(
            "feed_oldest_seconds", ages.get(topic, 0.0), {"topic": topic},
            "Age of a topic's oldest event that is still to be handled",
        )  # fmt: skip
    # Gauges, because the counters behind them are deleted after a while.
    hour = counters.since(now - _HOUR)
    for what in counters.NAMES:
        for topic in backlog.TOPICS:
            yield Sample(
                "feed_last_hour", hour[topic, what], {"topic": topic, "what": what},
                "What dispatchers did in the last hour: events handled and set aside, entries "
                "written, posts of authors who are merged at read",
            )  # fmt: skip
    # Without Redis the rest of the metrics is still there.
    try:
        found = list(_pace())
    except RedisError:
        return
    yield from found


def _pace() -> Iterator[Sample]:
    """What the scheduler measured and decided last."""
    last = pace_status.read()
    yield Sample("feed_scheduler_up", last is not None, help="1 while a dispatcher decides")
    if last is None:
        return
    yield Sample("feed_share", last.share, help="Share of their time that dispatchers work, 0 to 1")
    yield Sample("feed_batch_events", last.events, help="Events in a batch at most")
    yield Sample("feed_load", last.load, help="Load by others, 1 is the most that may be")
    yield Sample("feed_statements", last.statements, help="Statements of others, running at once")
    yield Sample("feed_cpu", last.cpu, help="Processors at work where the scheduler is, 0 to 1")
    for when, milliseconds in (("now", last.latency), ("at_rest", last.baseline)):
        yield Sample(
            "feed_probe_seconds", milliseconds / 1000, {"when": when},
            "What a small statement takes the database",
        )  # fmt: skip
