"""What `/metrics`, the overview and `doctor` say of CRM sync, and what raises an alert."""

from collections import Counter
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from prometheus_client.parser import text_string_to_metric_families

from bench.harness.plans import read_plan
from crmsync import presence
from crmsync.directory import Crms, Policies
from crmsync.models import Crm, Policy, Record, Source, Watermark, lead_triggers
from crmsync.monitor import backlog, conditions, counters, metrics as gauges
from crmsync.orders import Order, RetryQueue
from crmsync.presence import LiveCrm, PolicyFacts
from msgplatform import env
from msgplatform.core import flows
from msgplatform.core.connections import work_redis
from msgplatform.core.data import sql
from msgplatform.core.rates.breaker import State
from msgplatform.models import Alert, MinuteCounter
from msgplatform.monitor import metrics
from msgplatform.monitor.watch import of_flows
from tests.integration.crmsync import recovery_steps, sync_support
from tests.integration.crmsync.sync_support import hive

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
WAITING, QUEUED, RETRY, CONFIRMED, DEAD, DISMISSED, HELD = Record.State
LABELS = (("crm", "sales"), ("source", "hive"))


@pytest.fixture
def policy() -> Policy:
    return hive()


def put(policy: Policy, state: int, key: str = "1", **fields: Any) -> Record:
    one = recovery_steps.request(key)
    return recovery_steps.record(sync_support.new_operation(policy, [one]), one, state, **fields)


def count(policy: Policy, minutes_ago: float = 0.0, **values: int) -> None:
    at = sql.now() - timedelta(minutes=minutes_ago)
    counters.add(Counter({(policy.pk, name): value for name, value in values.items()}), at)


def scraped() -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """(name, labels) → value, as a Prometheus server reads them."""
    families = text_string_to_metric_families(metrics.exposition().decode())
    samples = [sample for family in families for sample in family.samples]
    prefix = "msgplatform_crmsync_"
    return {
        (s.name.removeprefix(prefix), tuple(sorted(s.labels.items()))): s.value for s in samples
    }


def with_label(name: str, value: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((*LABELS, (name, value))))


class TestMetrics:
    def test_records_queues_and_ages(self, policy: Policy) -> None:
        ago = sql.now() - timedelta(seconds=40)
        put(policy, WAITING, next_at=ago)
        put(policy, RETRY, "2", next_at=ago + timedelta(hours=1))
        recovery_steps.dead(policy, "3")
        put(policy, CONFIRMED, "4")
        RetryQueue("sales").put([Order(policy.pk, policy.crm_id, "c", 0.0, [])])
        Watermark.objects.create(policy=policy, update_time="x", key=1, moved_at=ago)
        found = scraped()
        states = {"waiting": 1, "queued": 0, "retry": 1, "dead": 1}
        for state, number in states.items():
            assert found["records", with_label("state", state)] == number
        assert ("records", with_label("state", "confirmed")) not in found
        for kind, number in {"main": 0, "retry": 1, "dead": 0}.items():
            assert found["queue_orders", (("crm", "sales"), ("queue", kind))] == number
        assert 40 <= found["oldest_due_seconds", LABELS] < 100
        assert 40 <= found["watermark_age_seconds", LABELS] < 100
        assert found["redis_up", ()] == 1
        for owner in (Policy, Crm):
            owner.objects.update(enabled=False)
            assert scraped()["oldest_due_seconds", LABELS] == 0
            owner.objects.update(enabled=True)

    def test_what_handlers_and_pollers_report(self, policy: Policy) -> None:
        live = LiveCrm(in_flight=2, latency=0.25, breaker=State.OPEN, held_for=7)
        presence.crms.report({policy.crm_id: live})
        presence.policies.report(
            {policy.pk: PolicyFacts(horizon_age=2.5, waiting=9, problem="gone")}
        )
        found = scraped()
        of_crm = (("crm", "sales"),)
        names: tuple[str, ...] = ("call_seconds", "in_flight", "breaker", "held_seconds", "paused")
        assert [found[name, of_crm] for name in names] == [0.25, 2, 2, 7, 0]
        names = ("policy_held", "horizon_age_seconds", "beyond_horizon", "source_readable")
        assert [found[name, LABELS] for name in names] == [1, 2.5, 9, 0]
        report(policy, horizon_age=3600, exact=False)
        assert ("horizon_age_seconds", LABELS) not in scraped()

    def test_the_last_hour(self, policy: Policy) -> None:
        count(policy, 2, confirmed=5, read=7, calls=3)
        count(policy, 90, confirmed=100)
        MinuteCounter.add("notify", {(1, policy.pk, "confirmed"): 1}, sql.now())
        found = scraped()
        assert found["records_last_hour", with_label("what", "confirmed")] == 5
        assert ("records_last_hour", with_label("what", "calls")) not in found
        assert 120 <= found["since_confirmed_seconds", LABELS] < 240

    def test_counts_end(self, policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
        for number in range(5):
            put(policy, DEAD, str(number))
        assert backlog.counts([policy.pk], limit=3) == Counter({(policy.pk, int(DEAD)): 3})

    def test_the_overview(self, policy: Policy) -> None:
        put(policy, WAITING, next_at=sql.now() - timedelta(seconds=40))
        put(policy, QUEUED, "2")
        recovery_steps.dead(policy, "3")
        put(policy, RETRY, "4", next_at=sql.now() + timedelta(hours=1))
        status = gauges.status()
        assert status.backlog == 3
        assert status.oldest_seconds
        assert 40 <= status.oldest_seconds < 100
        # What the backlog, the counters and the failures say is not said again.
        assert status.facts == {"failed, tried again": 1}
        Crm.objects.update(paused_at=sql.now(), paused_because="the password is wrong")
        assert gauges.status().facts["paused"] == "sales"
        assert gauges.status().oldest_seconds is None

    def test_as_many_queries_for_200_records_as_for_20(self, policy: Policy) -> None:
        flow = flows.get("crmsync")
        assert flow
        costs = []
        for start, end in ((0, 20), (20, 200)):
            for number in range(start, end):
                put(policy, (WAITING, DEAD, CONFIRMED)[number % 3], str(number))
            with CaptureQueriesContext(connection) as queries:
                list(flow.health.metrics())
                flow.health.status()
            costs.append(len(queries))
        assert costs[0] == costs[1] <= 20

    def test_the_oldest_and_the_counts_are_read_from_the_index(self, policy: Policy) -> None:
        for number in range(200):
            put(policy, CONFIRMED if number else WAITING, str(number), next_at=sql.now())
        with CaptureQueriesContext(connection) as queries:
            backlog.of_policies(sql.now())
            backlog.counts([policy.pk])
        for query in queries.captured_queries[1:]:
            with connection.cursor() as cursor:
                steps = read_plan(cursor, query["sql"].replace("%", "%%"))
            shown = [
                str(step.get("key") or step.get("detail")) for step in steps
                if "sync_record" in str(step)
            ]  # fmt: skip
            assert shown
            assert all("sync_record_due" in step for step in shown), shown

    def test_what_waits_for_each_crm_that_takes_work(self, policy: Policy) -> None:
        assert list(gauges.waits()) == []
        ago = sql.now() - timedelta(minutes=20)
        put(policy, RETRY, next_at=ago)
        put(policy, WAITING, "2", next_at=ago + timedelta(minutes=5))
        (wait,) = gauges.waits()
        assert (wait.which, wait.since) == (str(policy.crm_id), ago)
        assert str(policy.crm) in str(wait.what)
        Crm.objects.update(paused_at=sql.now())
        assert list(gauges.waits()) == [], "somebody has stopped it"


def opened() -> dict[str, str]:
    rows = Alert.objects.filter(open_key__isnull=False, key__startswith="crm.")
    return dict(rows.values_list("key", "subject"))


class TestAlerts:
    def test_a_source_that_cannot_be_read(self, policy: Policy) -> None:
        key = f"crm.source:{policy.pk}"
        report(policy, problem="no route", problem_for=59)
        watch()
        assert opened() == {}
        report(policy, problem="no route", problem_for=61)
        watch()
        assert opened() == {key: "The source hive cannot be read"}
        assert "no route" in Alert.objects.get(open_key=key).text
        presence.policies.withdraw(policy.pk)  # nobody can say whether it is over
        watch()
        assert list(opened()) == [key]
        report(policy)
        watch()
        assert opened() == {}

    def test_a_policy_that_is_switched_off_needs_nobody(self, policy: Policy) -> None:
        report(policy, problem="no route", problem_for=61)
        watch()
        Policy.objects.update(enabled=False)
        watch()
        assert opened() == {}

    def test_a_crm_that_is_switched_off_needs_nobody(self, policy: Policy) -> None:
        now = sql.now()
        Crm.objects.update(adapter="http", settings={}, paused_at=now, paused_because="HTTP 401")
        Policy.objects.update(mapping="name =", stopped_at=now)

        def look() -> set[str]:
            Crms().refresh()
            Policies().refresh()
            watch()
            return {key.partition(":")[0] for key in opened()}

        assert look() == {"crm.paused", "crm.removals", "crm.unusable", "crm.policy"}
        Crm.objects.update(enabled=False)
        assert look() == set()

    def test_a_column_by_which_rows_are_chosen_is_gone(self, policy: Policy) -> None:
        Policy.objects.update(mapping="name = name", appkeys=["ad-1"])
        Source.objects.update(value_columns=["name", "appkey"])
        assert list(Policies().load()) == [policy.pk]
        Source.objects.update(value_columns=["name"])
        assert not Policies().load()
        assert "no column appkey" in Alert.objects.get(kind="crm.policy").text

    def test_a_transaction_that_is_left_open(self, policy: Policy) -> None:
        report(policy, horizon_age=601, exact=False)
        watch()
        assert opened() == {}
        report(policy, horizon_age=601)
        watch()
        assert list(opened()) == [f"crm.horizon:{policy.pk}"]

    def test_nothing_is_confirmed(self, policy: Policy) -> None:
        record = put(policy, RETRY, next_at=sql.now())
        watch()
        pass_seconds(500)  # and the seconds that the test itself takes
        assert opened() == {}
        pass_seconds(101)
        assert opened() == {
            f"crm.stalled:{policy.crm_id}": "sales has confirmed nothing for 10 minutes"
        }
        watch()
        assert opened(), "another process may look next"
        count(policy, confirmed=1)
        watch()
        assert opened() == {}
        Record.objects.filter(pk=record.pk).update(state=CONFIRMED)
        pass_seconds(700)
        assert opened() == {}

    def test_a_record_that_is_not_due_stalls_nobody(
        self, policy: Policy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It waits for its next try, as it was set up to."""
        record = put(policy, RETRY, next_at=sql.now() + timedelta(hours=1))
        watch()
        pass_seconds(1400)
        assert opened() == {}
        Record.objects.filter(pk=record.pk).update(next_at=sql.now())
        watch()
        assert opened() == {}, "it has been due for a moment"
        pass_seconds(601)
        assert list(opened()) == [f"crm.stalled:{policy.crm_id}"]

    def test_a_crm_that_wants_fewer_calls_is_not_stalled(
        self, policy: Policy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put(policy, WAITING, next_at=sql.now())
        presence.crms.report({policy.crm_id: presence.LiveCrm(held_for=3600)})
        watch()
        pass_seconds(1400)
        assert opened() == {}

    def test_a_paused_crm_has_an_alert_of_its_own(
        self, policy: Policy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put(policy, WAITING)
        watch()
        Crm.objects.update(paused_at=sql.now())
        pass_seconds(700)
        assert opened() == {}

    @pytest.mark.parametrize(("ended", "is_told"), [((19, 0), False), ((1, 19), False),
                                                    ((2, 18), True), ((0, 30), False)])  # fmt: skip
    def test_the_share_of_the_dead(
        self, policy: Policy, ended: tuple[int, int], is_told: bool
    ) -> None:
        count(policy, 5, dead=ended[0], confirmed=ended[1])
        count(policy, 90, dead=500)
        watch()
        assert (f"crm.dead:{policy.pk}" in opened()) == is_told

    def test_the_recovery_log_is_left_lying(self, policy: Policy) -> None:
        _record, entry = recovery_steps.dead(policy, "1")
        watch()
        assert opened() == {}
        entry.created_at = sql.now() - timedelta(hours=25)
        entry.save()
        watch()
        assert opened() == {"crm.recovery:old":
                            "Entries of the recovery log open for more than a day: 1"}  # fmt: skip

    def test_entries_of_a_sandbox_hide_no_others(
        self, policy: Policy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(conditions, "_MAX_ENTRIES", 2)
        sandbox = sync_support.policy(sync_support.crm("training", "sandbox"), "hive")
        long_ago = sql.now() - timedelta(hours=25)
        for each, key in ((sandbox, "1"), (sandbox, "2"), (policy, "3")):
            recovery_steps.dead(each, key, created_at=long_ago)
        watch()
        assert opened() == {"crm.recovery:old":
                            "Entries of the recovery log open for more than a day: 1"}  # fmt: skip

    def test_an_emptied_redis_leaves_a_stalled_crm_alone(self, policy: Policy) -> None:
        put(policy, RETRY, next_at=sql.now())
        watch()
        pass_seconds(601)
        key = f"crm.stalled:{policy.crm_id}"
        work_redis().delete(conditions.STALLS)
        watch()
        assert list(opened()) == [key]
        count(policy, confirmed=1)
        watch()
        assert opened() == {}

    def test_a_full_redis_hides_no_stalled_crm(self, policy: Policy) -> None:
        put(policy, RETRY, next_at=sql.now())
        watch()
        pass_seconds(550)
        age_memory(60)
        work_redis().config_set("maxmemory", 1)
        try:
            watch()
        finally:
            work_redis().config_set("maxmemory", 0)
        assert list(opened()) == [f"crm.stalled:{policy.crm_id}"]

    def test_the_time_in_which_no_program_looked_does_not_count(self, policy: Policy) -> None:
        put(policy, RETRY, next_at=sql.now())
        watch()
        age_memory(3600)
        watch()
        assert opened() == {}

    def test_an_alert_about_a_source_stays_without_a_poller(self, policy: Policy) -> None:
        """With its texts in each language."""
        report(policy, problem="no route", problem_for=61)
        watch()
        (before,) = Alert.objects.values("subject", "text", "said")
        presence.policies.withdraw(policy.pk)
        watch()
        (after,) = Alert.objects.filter(open_key__isnull=False).values("subject", "text", "said")
        assert after == before

    def test_an_alert_is_raised_once(self, policy: Policy) -> None:
        report(policy, horizon_age=700)
        for _ in range(3):
            watch()
        assert Alert.objects.get().count == 1


def watch() -> None:
    """One look of the platform's watch at the conditions of the flow."""
    assert of_flows.report_conditions() == {}


def pass_seconds(seconds: int) -> None:
    """Looks at least every 100 seconds, while so many seconds pass."""
    while seconds > 0:
        age_memory(min(100, seconds))
        seconds -= 100
        watch()


def age_memory(seconds: int) -> None:
    """Make the last look at stalled CRMs so much older; without waiting records there is none."""
    content = work_redis().get(conditions.STALLS)
    if content is None:
        return
    memory = msgspec.json.decode(content)
    memory["at"] -= seconds
    work_redis().set(conditions.STALLS, msgspec.json.encode(memory))


def report(policy: Policy, **facts: Any) -> None:
    presence.policies.report({policy.pk: PolicyFacts(**facts)})


class TestDoctor:
    def test_what_is_wrong_and_how_to_repair_it(self, policy: Policy) -> None:
        triggers, poller = conditions.examine()
        assert (triggers.level, poller.level) == ("ok", "warn")
        assert poller.repair == f"{env.START}sync_poller"
        report(policy)
        assert [f.level for f in conditions.examine()] == ["ok", "ok"]
        report(policy, problem="no route")
        Crm.objects.update(paused_at=sql.now(), paused_because="the password is wrong")
        _triggers, crm, source = conditions.examine()
        assert (crm.level, crm.what) == (
            "bad", "CRM sync: sales is paused: the password is wrong"
        )  # fmt: skip
        assert "no route" in source.what

    def test_a_copy_without_triggers(self) -> None:
        with connection.schema_editor() as editor:
            lead_triggers.drop(editor)
        try:
            (finding, *_) = conditions.examine()
            assert (finding.level, "migrate" in finding.repair) == ("bad", True)
        finally:
            with connection.schema_editor() as editor:
                lead_triggers.create(editor)
