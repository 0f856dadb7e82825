"""The bench command, and how a result is made of stretches."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from bench.gateway import sms_kannel
from bench.harness import catalogue, command, interleave, outcome, report
from bench.harness.ground import Ground
from bench.harness.measure import Stretch
from bench.harness.programs import quantiles
from bench.notify import sender
from msgplatform.env import BASE_DIR

NAMES = [
    "intake", "intake-batch", "maker", "sender", "http-engine", "marker", "notify", "latency",
    "fairness", "subscriptions", "notify-at-scale", "sgip", "sms", "sync", "sync-policies",
    "feed", "feed-visible", "feed-at-scale", "feed-backlog", "pages",
]  # fmt: skip
SECONDS = 0.3
REFERENCE = "executemany"


@pytest.fixture(scope="module")
def run() -> subprocess.CompletedProcess[str]:
    """A bench in a process of its own, as a user starts it."""
    return subprocess.run(
        [
            *(sys.executable, "manage.py", "bench", "intake-batch", "--json"),
            *("--seconds", str(SECONDS), "--runs", "1", "--against", REFERENCE),
        ],
        cwd=BASE_DIR, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip


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
        assert set(result["against"]) == set(result["ratio"]) == {REFERENCE}
        assert result["rate"] > 0
        for name, rate in result["against"].items():
            ratio = result["rate"] / rate  # of rounded rates
            assert result["ratio"][name] == pytest.approx(ratio, rel=0.05, abs=0.02)

    def test_memory_is_that_of_our_side(self, result: dict[str, Any]) -> None:
        assert result["rss_of"] == ["publisher"]
        assert 10 < result["rss_mb"] < 1000

    def test_seconds_bound_each_stretch(self, result: dict[str, Any]) -> None:
        assert set(result["measured_seconds"]) == {"ours", REFERENCE}
        for seconds in result["measured_seconds"].values():
            # Making the batches is taken off, and a stretch ends between two looks, late on a busy
            # machine.
            assert SECONDS / 3 < seconds < SECONDS * 30

    def test_cpu_by_process(self, result: dict[str, Any]) -> None:
        # A short stretch on a busy machine may take one of them less than a tick.
        for side in ("ours", REFERENCE):
            assert {"publisher", "mariadb"} <= set(result["cpu_us"][side])
            assert sum(result["cpu_us"][side].values()) > 0

    def test_progress_goes_to_standard_error(self, run: subprocess.CompletedProcess[str]) -> None:
        assert "intake-batch run 1/1" in run.stderr

    def test_an_unknown_name_lists_the_names(self) -> None:
        with pytest.raises(CommandError) as refusal:
            call_command("bench", "nosuch", "--json")
        assert str(refusal.value) == (
            f"There is no bench nosuch. There are: {', '.join(NAMES)}, and, alone, soak."
        )


class TestAgainst:
    """`--against`: which references a bench is measured beside."""

    def test_sides(self) -> None:
        assert catalogue.sides("sender", ["pycurl-multi", "bullmq"]) == [
            sender.Sender, sender.BullMq, sender.PycurlMulti
        ]  # fmt: skip
        assert catalogue.sides("sender") == sender.sides()

    @pytest.mark.parametrize(
        ("names", "against", "problem"),
        [
            (["marker"], "orm-save,ours", "No reference is called ours."),
            (["marker", "sgip"], "orm-save", "sgip is measured beside none of orm-save."),
        ],
    )
    def test_refusal(self, names: list[str], against: str, problem: str) -> None:
        lists = {"marker": "orm-save, orm-save+log", "sgip": "framed-echo, framed-echo-streams"}
        with pytest.raises(CommandError) as refusal:
            call_command("bench", *names, "--against", against)
        there = "; ".join(f"{name}: {lists[name]}" for name in names)
        assert str(refusal.value) == f"{problem} There are: {there}."

    def test_the_document_describes_what_was_measured(self, result: dict[str, Any]) -> None:
        description = "The limit: the same rows of both tables"
        assert description in report.document([result])
        assert description not in report.document([{**result, "against": {}}])


def test_what_cannot_be_installed_is_left_out_and_said(
    result: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no node, no apt-get, no bearerbox
    ground = Ground("sqlite")
    sides, left_out = interleave.installed(
        [sender.Sender, sender.BullMq, sender.PycurlMulti, sms_kannel.Kannel], ground
    )
    ground.__exit__()
    assert sides == [sender.Sender, sender.PycurlMulti]
    assert left_out == {
        "bullmq": "bullmq needs node and npm, which are not installed.",
        "kannel": "kannel is not installed, and this is no Debian to take it from.",
    }
    assert "bullmq is left out: bullmq needs node and npm" in capsys.readouterr().err
    for shown in (report.table, report.document):
        assert left_out["bullmq"] in shown([{**result, "left_out": left_out}])


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


@pytest.mark.parametrize(
    ("name", "side", "has_ratio"),
    [
        ("notify", "drf+orm-tuned", True),
        ("latency", "half-of-capacity", False),
        ("feed-visible", "10k-followers", False),
        ("feed-at-scale", "at-100k-entries", True),
        ("feed-at-scale", "unread", False),
        ("feed-at-scale", "any-reader", False),
    ],
)
def test_no_ratio_of_different_work(name: str, side: str, has_ratio: bool) -> None:
    stretch = Stretch(9.0, 2.0, 18, {"load": 0.5}, [], ["load"], 50.0, {})
    found = outcome.result(name, {"ours": [stretch], side: [stretch]}, {})
    assert ("1 ×" in report.table([found])) == has_ratio


@pytest.mark.parametrize(
    ("bench", "side", "ratio", "line"),
    [
        ("sgip", "framed-echo", 0.29, "- **`sgip` is 0.29 × `framed-echo`**: The echo decodes"),
        ("sgip", "framed-echo", 0.97, ""),  # level
        ("fairness", "fan-out", 0.9, "- **`fairness`, `fan-out`**: A quiet system waits"),
    ],
)
def test_a_figure_that_is_not_good_has_its_reason(
    result: dict[str, Any], bench: str, side: str, ratio: float, line: str
) -> None:
    stretch = Stretch(9.0, 2.0, 18, {"load": 0.5}, [], ["load"], 50.0, {})
    found = outcome.result(bench, {"ours": [stretch], side: [stretch]}, {"ratio": {side: ratio}})
    text = report.document([{**result, **found}])
    assert ("## Figures that are not good" in text) == bool(line)
    assert line in text


def test_the_document_has_what_other_runs_measured(result: dict[str, Any], tmp_path: Path) -> None:
    earlier = {**result, "bench": "sgip", "date": "2020-01-02", "commit": "abc1234"}
    (tmp_path / "sgip.json").write_text(json.dumps(earlier))
    file = tmp_path / "benchmarks.md"
    file.write_text("# Benchmarks\n\n<!-- soak -->\n## Soak\n<!-- /soak -->\n")
    command.write([result], file, tmp_path)
    text = file.read_text()
    assert "- 2020-01-02, commit abc1234, 1 × 0.3 s, mariadb: `sgip`." in text
    assert text.index("| `intake-batch` |") < text.index("| `sgip` |") < text.index("## Soak")


@pytest.mark.parametrize(
    ("count", "names"),
    [
        (0, ["max_ms"]),
        (1, ["max_ms"]),
        (19, ["p50_ms", "max_ms"]),
        (20, ["p50_ms", "p95_ms", "max_ms"]),
        (999, ["p50_ms", "p95_ms", "p99_ms", "max_ms"]),
        (1000, ["p50_ms", "p95_ms", "p99_ms", "p999_ms", "max_ms"]),
    ],
)
def test_a_quantile_has_enough_times(count: int, names: list[str]) -> None:
    found = quantiles.report([number / 1000 for number in range(1, count + 1)])
    assert list(found) == names
    assert found["max_ms"] == count


def test_quantiles_of_each_run_and_the_spread_of_one(result: dict[str, Any]) -> None:
    def stretches(*counts: int) -> list[Stretch]:
        return [
            Stretch(9.0, 2.0, 18, {"load": 0.5}, [], ["load"], 50.0,
                    quantiles.report([number / 1000 for number in range(1, count + 1)]))
            for count in counts
        ]  # fmt: skip

    found = outcome.result("intake-batch", {"ours": stretches(30, 10), "other": stretches(30)}, {})
    assert found["answer_ms"]["ours"] == {"p50_ms": 11.0, "max_ms": 30.0}
    assert list(found["answer_ms"]["other"]) == ["p50_ms", "p95_ms", "max_ms"]
    shown = report.document([{**result, **found}])
    assert "| `intake-batch` | ours | 9.0 msgs/s |  | 0% | 11.0, –, –, 30.0 |" in shown
    assert "|  | `other` | 9.0 | 1 × | – | 16.0, 29.0, –, 30.0 |" in shown
    assert report.table([found]).splitlines()[-1].endswith("–")
