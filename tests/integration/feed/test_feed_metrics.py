"""What `/metrics`, the overview and `doctor` say of Feed, and what raises an alert."""

import re
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from prometheus_client.parser import text_string_to_metric_families

from bench.harness.plans import read_plan
from msgplatform import env
from msgplatform.core.data import sql
from msgplatform.models import Alert, Biz, MinuteCounter
from msgplatform.monitor import failure_groups, metrics
from msgplatform.monitor.failure_groups import GroupSnapshot
from msgplatform.monitor.watch.of_flows import report_conditions
from msgplatform.monitor.watch.watch import Watch
from notify.feed import presence
from notify.feed.actions.actions import resend_events
from notify.feed.dispatcher import fanout, queue
from notify.feed.models import EventQueue
from notify.feed.monitor import backlog, conditions, counters, failures, metrics as gauges
from notify.feed.presence import PaceDecision
from tests.support.feed_rows import drain, post, related, set_aside, visited

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
_STATUS = EventQueue.Status


@pytest.fixture
def biz() -> Biz:
    return Biz.objects.create(name="orders")


def made_earlier(seconds: float, *qids: int) -> None:
    at = sql.now() - timedelta(seconds=seconds)
    EventQueue.objects.filter(pk__in=qids).update(create_date=at)


def scraped() -> dict[tuple[str, ...], float]:
    """(name, values of labels …) → value, as a Prometheus server reads them."""
    families = text_string_to_metric_families(metrics.exposition().decode())
    samples = [sample for family in families for sample in family.samples]
    prefix = "msgplatform_feed_"
    return {
        (s.name.removeprefix(prefix), *(s.labels[name] for name in sorted(s.labels))): s.value
        for s in samples if s.name.startswith(prefix)
    }  # fmt: skip


class TestMetrics:
    def test_events_and_ages(self, biz: Biz) -> None:
        post(biz, "bob")
        drain()
        old, sliced = post(biz, "ann"), post(biz, "ann", topic="vip")
        post(biz, "ann")
        set_aside(biz, "ann", topic="vip")
        EventQueue.objects.filter(pk=sliced).update(status=_STATUS.IN_SLICES)
        made_earlier(40, old)
        made_earlier(90, sliced)
        found = scraped()
        assert found["events", "waiting", "friend"] == 2
        assert found["events", "in_slices", "vip"] == found["events", "set_aside", "vip"] == 1
        assert found["events", "waiting", "upkeep"] == 0
        assert not [key for key in found if "handled" in key and key[0] == "events"]
        assert 40 <= found["oldest_seconds", "friend"] < 90 <= found["oldest_seconds", "vip"] < 150
        assert found["oldest_seconds", "upkeep"] == 0

    def test_the_last_hour(self, biz: Biz) -> None:
        related(biz, ("ann", "befriend", "bob"))
        visited(biz, "ann", "bob")
        post(biz, "ann")
        drain()
        set_aside(biz, "ann", topic="vip")
        MinuteCounter.add("feed", {(biz.pk, 0, "handled_vip"): 7}, sql.now() - timedelta(hours=2))
        MinuteCounter.add("notify", {(biz.pk, 0, "handled_vip"): 7}, sql.now())
        found = scraped()
        assert found["last_hour", "friend", "handled"] == 1
        assert found["last_hour", "friend", "entries"] == 1
        assert found["last_hour", "vip", "set_aside"] == 1
        assert found["last_hour", "vip", "handled"] == 0

    def test_the_scheduler(self, biz: Biz) -> None:
        assert scraped()["scheduler_up",] == 0
        assert presence.lease.hold("me")
        assert presence.publish_decision(
            PaceDecision("me", 1.0, 0.25, 25, load=1.5, latency=4.0, baseline=2.0)
        )
        found = scraped()
        names = ("scheduler_up", "share_ratio", "batch_events", "load_ratio")
        assert [found[name,] for name in names] == [1, 0.25, 25, 1.5]
        assert found["probe_seconds", "now"] == 0.004
        assert found["probe_seconds", "at_rest"] == 0.002

    def test_the_overview(self, biz: Biz, monkeypatch: pytest.MonkeyPatch) -> None:
        post(biz, "ann")
        drain()
        made_earlier(40, post(biz, "ann"))
        set_aside(biz, "ann")
        status = gauges.status()
        assert (status.backlog, status.problem) == (1, "")
        assert status.oldest_seconds
        assert 40 <= status.oldest_seconds < 100
        assert status.facts == {}, "the counters and the failures say the rest"

    def test_counts_end(self, biz: Biz) -> None:
        for _ in range(5):
            post(biz, "ann")
        assert backlog.counts(3)["friend", _STATUS.WAITING] == 3

    def test_the_counts_and_the_oldest_are_read_from_the_index(self, biz: Biz) -> None:
        for _ in range(200):
            post(biz, "ann")
        drain()
        post(biz, "ann")
        now = sql.now()
        with CaptureQueriesContext(connection) as queries:
            backlog.counts()
            backlog.oldest(now)
        assert len(queries) == 9 + 1 + 6
        for query in queries.captured_queries:
            with connection.cursor() as cursor:
                steps = read_plan(cursor, query["sql"].replace("%", "%%"))
            shown = [str(step) for step in steps if "eventqueue" in str(step)]
            assert shown
            assert all("eventqueue_to_handle" in step for step in shown), shown


def opened() -> dict[str, str]:
    rows = Alert.objects.filter(open_key__isnull=False)
    return dict(rows.values_list("key", "subject"))


class TestAlerts:
    def test_what_was_set_aside_until_it_is_replayed(
        self, biz: Biz, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        related(biz, ("ann", "befriend", "bob"))
        visited(biz, "bob")
        qid = post(biz, "ann")

        def failing(*given: Any) -> int:
            raise ValueError("this one cannot be written")

        with monkeypatch.context() as patch:
            patch.setattr(fanout, "push", failing)
            drain()
        key = failures.SET_ASIDE_KEY
        assert opened() == {key: f"Feed: event {qid} was set aside"}
        assert "cannot be written" in Alert.objects.get(open_key=key).text
        report_conditions()
        assert list(opened()) == [key]
        assert Alert.objects.count() == 1
        resend_events([qid])
        report_conditions()
        assert opened() == {}

    def test_what_was_set_aside_until_it_is_acknowledged(self, biz: Biz) -> None:
        set_aside(biz, "ann")
        report_conditions()
        assert list(opened()) == [failures.SET_ASIDE_KEY]
        (group,) = failure_groups.open_groups("feed")
        seen = GroupSnapshot(group.pk, group.lost, group.last_at)
        failure_groups.acknowledge(seen, "friend", group.answer, "a test post", "ann")
        report_conditions()
        assert opened() == {}

    def test_one_that_nobody_told_of(self, biz: Biz) -> None:
        """The process that set it aside was killed before it could."""
        set_aside(biz, "ann")
        set_aside(biz, "ann", topic="vip")
        report_conditions()
        assert opened() == {failures.SET_ASIDE_KEY: "Feed: events were set aside: friend 1, vip 1"}

    def test_a_late_queue(self, biz: Biz, settings: Any) -> None:
        settings.FEED_LATE_SECONDS = 600
        late, sliced = post(biz, "ann"), post(biz, "ann", topic="vip")
        made_earlier(300, late)
        report_conditions()
        assert opened() == {}
        made_earlier(601, late)
        report_conditions()
        assert opened() == {"feed.late:friend": "Feed: events of topic friend have waited for long"}
        made_earlier(601, sliced)
        EventQueue.objects.filter(pk=sliced).update(status=_STATUS.IN_SLICES)
        report_conditions()
        assert sorted(opened()) == ["feed.late:friend", "feed.late:vip"]
        drain()
        report_conditions()
        assert opened() == {}

    def test_a_late_queue_without_any_dispatcher(self, biz: Biz) -> None:
        """The daemon that holds the watch reports it; none of Feed's programs runs."""
        made_earlier(3600, post(biz, "ann"))
        watch = Watch()
        watch.look()
        assert list(opened()) == ["feed.late:friend"]
        drain()
        watch.look()
        assert opened() == {}


class TestFindings:
    def test_nothing_is_wrong(self, biz: Biz) -> None:
        (found,) = conditions.examine()
        assert found.level == "ok"

    def test_late(self, biz: Biz) -> None:
        made_earlier(3600, post(biz, "ann"))
        (late,) = conditions.examine()
        assert (late.level, late.repair) == ("warn", f"{env.START}feed_dispatcher")
        assert "friend" in late.what
        (seconds,) = re.findall(r"(\d+) seconds", late.what)
        assert 3600 <= int(seconds) < 3700
        assert "run_feed_dispatcher" in late.repair


def test_what_is_set_aside_again_is_counted_again(biz: Biz) -> None:
    qid = set_aside(biz, "ann")
    queue.set_aside(qid, ValueError("again"))  # another dispatcher failed at the same time
    since = sql.now() - timedelta(hours=1)
    accepted = {("friend", "accepted"): 1}
    assert counters.since(since) == Counter({("friend", "set_aside"): 1, **accepted})
    resend_events([qid])
    queue.set_aside(qid, ValueError("again"))
    assert counters.since(since) == Counter({("friend", "set_aside"): 2, **accepted})
