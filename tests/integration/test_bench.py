"""The bench command on its own servers, and what makes a bench fail instead of giving a figure."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from bench import messages, notify_rows, outcome
from bench.measure import Stretch
from bench.processes import BenchFailed
from msgplatform.env import BASE_DIR
from msgplatform.models import Biz
from notify import intake
from notify.models import BizMsg

NAMES = [
    "intake", "intake-batch", "maker", "sender", "http-engine", "marker", "notify",
    "notify-at-scale", "sgip", "sms",
]  # fmt: skip
SECONDS = 0.3


def bench(
    *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", "bench", *arguments],
        cwd=BASE_DIR, capture_output=True, text=True, timeout=300, check=False,
        env=environment,
    )  # fmt: skip


@pytest.fixture(scope="module")
def run() -> subprocess.CompletedProcess[str]:
    return bench("intake-batch", "--json", "--seconds", str(SECONDS), "--runs", "1")


@pytest.fixture
def result(run: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert run.returncode == 0, run.stderr
    (line,) = run.stdout.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


class TestCommand:
    def test_the_object(self, result: dict[str, Any]) -> None:
        assert (result["bench"], result["unit"]) == ("intake-batch", "msgs/s")
        assert result["database"] == "mariadb"
        assert set(result["against"]) == set(result["ratio"]) == {"executemany", "bulk_create"}
        assert result["rate"] > 100
        for name, rate in result["against"].items():
            assert result["ratio"][name] == pytest.approx(result["rate"] / rate, abs=0.02)

    def test_memory_is_that_of_our_side(self, result: dict[str, Any]) -> None:
        assert result["rss_of"] == ["publisher"]
        assert 10 < result["rss_mb"] < 1000

    def test_seconds_bound_each_stretch(self, result: dict[str, Any]) -> None:
        assert set(result["measured_seconds"]) == {"ours", "executemany", "bulk_create"}
        for seconds in result["measured_seconds"].values():
            # Making the batches is taken off, and a stretch ends between two looks.
            assert SECONDS / 3 < seconds < SECONDS * 3

    def test_cpu_by_process(self, result: dict[str, Any]) -> None:
        for side in ("ours", "executemany", "bulk_create"):
            assert result["cpu_us"][side]["publisher"] > 0
            assert result["cpu_us"][side]["mariadb"] > 0

    def test_progress_goes_to_standard_error(self, run: subprocess.CompletedProcess[str]) -> None:
        assert "intake-batch run 1/1" in run.stderr

    def test_an_unknown_name_lists_the_names(self) -> None:
        said = bench("nosuch", "--json")
        assert said.returncode != 0
        assert said.stdout == ""
        assert said.stderr.strip().endswith(
            f"There is no bench nosuch. There are: {', '.join(NAMES)}."
        )


# Of the bench with ten million rows: as many as a test has time for.
ROWS = (1000, 10_000)


@pytest.fixture(scope="module")
def at_scale(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    plans = tmp_path_factory.mktemp("plans") / "plans.md"
    environment = {
        **os.environ, "BENCH_ROWS": ",".join(map(str, ROWS)), "BENCH_PLANS": str(plans)
    }  # fmt: skip
    said = bench(
        "notify-at-scale", "--json", "--seconds", "1", "--runs", "1", environment=environment
    )
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout), plans.read_text()


class TestAtScale:
    # Rows that a step of the way of 200 messages may read: some for each message, never a table.
    MOST = 6_000

    def test_both_sizes_are_measured(self, at_scale: tuple[dict[str, Any], str]) -> None:
        result, _ = at_scale
        assert result["rows"] == {"at-1m-rows": 1000, "ours": 10_000}
        assert result["buffer_pool_mb"] == 128
        assert set(result["ratio"]) == {"at-1m-rows", "random-keys", "random-keys-at-1m-rows"}
        assert min(result["rate"], *result["against"].values()) > 50

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
        assert "FORCE INDEX (biz_msg_to_split)" in claim
        assert re.search(r"\| biz_msg \| \w+ \| biz_msg_to_split \|", claim)


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


def test_medians_and_ratios() -> None:
    def stretches(*rates: float) -> list[Stretch]:
        return [
            Stretch(r, 2.0, int(r * 2), {"web": 1.0, "load": 0.5}, ["web"], ["load"], 50.0, {})
            for r in rates
        ]

    found = outcome.result(
        "x", {"ours": stretches(1000, 3000, 1200), "other": stretches(400, 300, 500)}, {"runs": 3}
    )
    assert (found["rate"], found["against"], found["ratio"]) == (1200, {"other": 400}, {"other": 3})
    assert found["spread"] == {"ours": 1.667, "other": 0.5}
    assert found["load_cpu"] == {"ours": 0.25, "other": 0.25}
    assert found["cpu_us"]["ours"] == {"web": 416.7, "load": 208.3}
    assert found["runs"] == 3
