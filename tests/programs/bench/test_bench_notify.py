"""Benches of Notify on their own servers, and what makes one fail instead of giving a figure."""

import re
from argparse import Namespace
from typing import Any

import pytest

from bench.harness.processes import BenchFailed
from bench.harness.programs import messages, quantiles
from bench.notify import notify_rows
from bench.notify.correspondent import Correspondent
from msgplatform.models import Biz
from notify.intake import intake
from notify.models import BizMsg
from tests.programs.bench.bench_command import bench, measured_or_left_out

# Of the bench with ten million rows: as many as a test has time for.
ROWS = (1000, 10_000)
AT_SCALE = {"at-1m-rows", "random-keys", "random-keys-at-1m-rows"}
REFERENCES = [
    ("intake", {"one-schema", "fifty-schemas", "drf+orm-default", "drf+orm-tuned"}),
    ("intake-batch", {"executemany", "bulk_create"}),
    ("maker", {"rq-per-message", "rq-enqueue-many", "bullmq"}),
    ("sender", {"rq+requests", "bullmq", "pycurl-multi"}),
    ("http-engine", {"pycurl-multi"}),
    ("marker", {"orm-save", "orm-save+log"}),
    ("notify", {"encrypted-payloads", "drf+orm-default", "drf+orm-tuned"}),
    ("subscriptions", {"5550-subscriptions"}),
]


@pytest.fixture(scope="module")
def at_scale(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    plans = tmp_path_factory.mktemp("plans") / "plans.md"
    environment = {"BENCH_ROWS": ",".join(map(str, ROWS)), "BENCH_PLANS": str(plans)}
    result = bench("notify-at-scale", "--seconds", "0.3", environment=environment)
    return result, plans.read_text()


@pytest.mark.full
@pytest.mark.parametrize(("name", "references"), REFERENCES)
def test_every_side_is_measured(name: str, references: set[str]) -> None:
    """A bench that nobody runs for a while breaks unseen."""
    result = bench(name, "--seconds", "0.3")
    assert measured_or_left_out(result) == references
    assert min(result["rate"], *result["against"].values()) > 0


@pytest.mark.full
class TestAtScale:
    # Rows that a step of the way of 200 messages may read: some for each message, never a table.
    MOST = 6_000

    def test_both_sizes_are_measured(self, at_scale: tuple[dict[str, Any], str]) -> None:
        result, _ = at_scale
        assert result["rows"] == {"at-1m-rows": 1000, "ours": 10_000}
        assert result["buffer_pool_mb"] == 128
        assert set(result["ratio"]) == AT_SCALE
        assert min(result["rate"], *result["against"].values()) > 0

    def test_no_step_of_a_message_reads_a_table(self, at_scale: tuple[dict[str, Any], str]) -> None:
        _, plans = at_scale
        rows = re.findall(r"^\| ([^|]+) \| (\d+) \| ([\d,]+) \| ([\d,]+) \|$", plans, re.MULTILINE)
        reads = {
            step: int(large.replace(",", ""))
            for step, _, _, large in rows
            if step.startswith(("Intake", "Maker", "Marker"))
        }
        assert len(reads) == 7
        assert {step: count for step, count in reads.items() if count > self.MOST} == {}
        # What is counted are rows, not nothing: each message is at least looked up once.
        assert all(count >= 200 for count in reads.values())

    def test_plans_are_those_of_the_statements(self, at_scale: tuple[dict[str, Any], str]) -> None:
        _, plans = at_scale
        claim = plans.split("## Maker: settle, due, split and queue")[1].split("\n## ")[0]
        assert "FORCE INDEX (biz_msg_to_split_of_biz)" in claim
        assert re.search(r"\| biz_msg \| \w+ \| biz_msg_to_split_of_biz \|", claim)


class _ColdPlatform(Correspondent):
    """Delivers nothing for 0.3 s, and then 1,000 messages a second, by a clock of its own."""

    now = 0.0

    def clock(self) -> float:
        return self.now

    def _poll(self, seconds: float) -> None:
        self.now += seconds
        self.published = self.delivered = max(0, int((self.now - 0.3) * 1000))


class TestLatency:
    def test_the_look_for_the_capacity_leaves_out_its_cold_beginning(self) -> None:
        # A look of a second.
        options = Namespace(rate=0.0, seconds=3.0, kinds=0, dead_kinds=0, sink_port=0)
        correspondent = _ColdPlatform(options, [])
        correspondent._measure_capacity()
        assert correspondent.rate == pytest.approx(500, rel=0.2)  # 350 with the beginning

    @pytest.mark.full
    def test_idle_at_half_of_capacity_and_a_slow_consumer(self) -> None:
        result = bench("latency", "--seconds", "0.6")
        for times in (result["answer_ms"], result["due_ms"]):
            assert set(times) == {"ours", "half-of-capacity", "slow-consumer"}
            for each in times.values():
                # Three messages a second are too few for each quantile.
                assert list(each) == [name for name in quantiles.NAMES if name in each]
                assert "max_ms" in each
                assert list(each.values()) == sorted(each.values())
        for side, times in result["due_ms"].items():
            assert times["max_ms"] >= result["answer_ms"][side]["max_ms"], "it counts from earlier"


@pytest.mark.full
class TestFairness:
    def test_both_floods_and_the_same_without(self) -> None:
        times = bench("fairness", "--seconds", "0.3")["answer_ms"]
        assert set(times) == {"ours", "fan-out", "alone"}
        assert all("max_ms" in t and list(t.values()) == sorted(t.values()) for t in times.values())


class TestChecks:
    """A bench that lost something must not give a figure."""

    @pytest.mark.django_db(transaction=True)
    def test_stored_messages(self) -> None:
        biz = Biz.objects.create(name="orders")
        keys = [messages.key("a", number) for number in range(3)]
        verdicts = intake.publish_many(
            [intake.Event(biz.pk, messages.EVENT_TYPE, messages.payload(k), k) for k in keys]
        )
        notify_rows.check_stored(set(keys))
        with pytest.raises(BenchFailed, match="3 were found, 4 were expected"):
            notify_rows.check_stored({*keys, "a-3"})
        with pytest.raises(BenchFailed, match="a-2"):
            notify_rows.check_stored({"a-0", "a-1", "b-2"})
        BizMsg.objects.filter(id=verdicts[1].id).update(payload=messages.payload("a-2"))
        with pytest.raises(BenchFailed, match="a-1"):
            notify_rows.check_stored(set(keys))

    @pytest.mark.parametrize(
        "seen", [["a-0"], ["a-0", "a-1", "a-1"], ["a-0", "a-2"]], ids=["lost", "twice", "other"]
    )
    def test_delivered_messages(self, seen: list[str]) -> None:
        def digests(keys: list[str]) -> bytes:
            return b"".join(messages.digest(messages.delivered_body(k).encode()) for k in keys)

        keys = ["a-0", "a-1"]
        notify_rows.check_seen(digests(keys), keys)
        with pytest.raises(BenchFailed):
            notify_rows.check_seen(digests(seen), keys)
