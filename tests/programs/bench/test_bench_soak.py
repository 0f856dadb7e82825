"""`manage.py bench soak`: a short run over all flows, its ledger, samples and document."""

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from bench.harness.programs import quantiles
from bench.soak import books, calls, command, document, judgement, ledger, samples, stage
from gateway.models import SgipMt
from msgplatform.core.errors import InvalidInput
from msgplatform.env import BASE_DIR
from tests.programs.bench.bench_command import sigterm_as_before

RATES = {"notify": 8, "sms": 5, "crmsync": 3, "feed": 3}
WAYS = ["notify, fast", "notify, slow", "notify, dead", "sms", "crmsync", "feed"]


@pytest.fixture(scope="module")
def run() -> Iterator[tuple[dict[str, Any], str]]:
    """The result, and the sentence with which the command ends."""
    rates = [f"--rate={flow}={rate}" for flow, rate in RATES.items()]
    output = StringIO()
    with sigterm_as_before(), pytest.raises(CommandError) as error:
        call_command(
            "bench", "soak", "--hours", "0.001", "--every", "1", "--json", "--lose-one", *rates,
            "--restart", "run_sender,run_maker", stdout=output,
        )  # fmt: skip
    assert output.getvalue(), str(error.value)
    result: dict[str, Any] = json.loads(output.getvalue())
    yield result, str(error.value)
    shutil.rmtree(Path(result["samples"]).parent)


@pytest.fixture
def result(run: tuple[dict[str, Any], str]) -> dict[str, Any]:
    return run[0]


@pytest.mark.full
class TestRun:
    """A run of some seconds that deletes a delivery between two ledgers. Only two programs are
    restarted, for each start costs a second of a processor."""

    def test_the_ledger_balances(self, result: dict[str, Any]) -> None:
        lines = {line["way"]: line for line in result["lines_before_loss"]}
        assert list(lines) == WAYS
        for way, line in lines.items():
            assert line["problems"] == [], way
            assert line["published"] > 0
            assert line["delivered"] + line["failed"] + line["waiting"] == line["published"]
            if way != "notify, dead":
                assert line["delivered"] == line["arrived"] == line["published"]
        assert lines["notify, dead"]["delivered"] == 0
        assert result["errors"] == []

    def test_a_loss_makes_the_run_void(self, run: tuple[dict[str, Any], str]) -> None:
        result, error = run
        assert "notify, fast: 1 messages have no delivery" in error
        assert result["is_void"]
        lines = {line["way"]: line["problems"] for line in result["lines"]}
        assert [way for way in WAYS if lines[way]] == ["notify, fast"]
        assert "The run is VOID" in document.table(result)

    def test_each_sample_has_all_columns(self, result: dict[str, Any]) -> None:
        rows = [json.loads(line) for line in Path(result["samples"]).read_text().splitlines()]
        assert rows
        programs = {"web", "run_maker", "run_sms_sender", "run_sync_handler", "run_feed_cleaner"}
        for row in rows:
            assert programs | {"mariadb", "redis", "redis-sms", "smg"} <= set(row["programs"])
            for program in row["programs"].values():
                assert set(program) == set(samples.PROGRAM_COLUMNS)
            for name in ("work", "sms"):
                assert set(row["redis"][name]) == set(samples.REDIS_COLUMNS)
            assert row["mariadb"]["connections"] > 0
            assert 0 < row["programs"]["mariadb"]["pss_mb"] < row["mariadb"]["pool_mb"] + 500
            for table in judgement.HOT_TABLES:
                assert set(row["mariadb"]["tables"][table]) == set(samples.TABLE_COLUMNS)
            assert set(row["accepted"]) == set(command.FLOWS)
            assert {"consumer", "smg", "reads", *command.FLOWS} <= set(row["load"])
            assert programs.isdisjoint(row["load"])
        assert min(rows[-1]["programs"][name]["pss_mb"] for name in programs) > 1

    def test_latencies_of_each_way(self, result: dict[str, Any]) -> None:
        for place in ("fast", "slow", "sms", "crm", "feed", "reads:answer", "sms:answer"):
            times = result["latency"][place]
            assert times["count"] > 0
            # A short run has too few messages for some quantiles.
            found = [times[name] for name in quantiles.NAMES if name in times]
            assert found[0] > 0
            assert found == sorted(found)
            assert ("p95_ms" in times) == (times["count"] >= 20)

    def test_restarts(self, result: dict[str, Any]) -> None:
        pairs = [(each["program"], each["signal"]) for each in result["restarts"]]
        assert pairs == [("run_sender", "SIGKILL"), ("run_maker", "SIGTERM")]

    def test_retention_has_dropped_old_months(self, result: dict[str, Any]) -> None:
        last = json.loads(Path(result["samples"]).read_text().splitlines()[-1])
        assert last["mariadb"]["tables"]["biz_msg_cold"]["partitions"] > 1
        assert result["old_rows"] == 0

    def test_document_and_chart(self, result: dict[str, Any], tmp_path: Path) -> None:
        file = tmp_path / "benchmarks.md"
        file.write_text("# Benchmarks\n\nText.\n")
        command.write(result, file)
        command.write(result, file)  # in place of the first one
        text = file.read_text()
        assert text.startswith("# Benchmarks\n\nText.\n")
        assert text.count("## Soak") == 1
        assert "| notify, fast |" in text
        assert (result["unread"], "on no page" in text) == (0, False)
        for shown in (document.table, lambda found: document.section(found, "soak.svg")):
            assert "1,234 posts were on no page" in shown({**result, "unread": 1234})
        chart = ElementTree.parse(tmp_path / "images" / "soak.svg")
        assert len(list(chart.iter("{http://www.w3.org/2000/svg}polyline"))) > 8


class TestJudgement:
    def _sample(self, elapsed: float, pss: float = 50.0, p95: float = 20.0) -> dict[str, Any]:
        redis = dict.fromkeys(samples.REDIS_COLUMNS, 1.0)
        program = dict.fromkeys(samples.PROGRAM_COLUMNS, 8.0) | {"pss_mb": pss}
        tables = {name: dict.fromkeys(samples.TABLE_COLUMNS, 1.0) for name in judgement.HOT_TABLES}
        return {
            "elapsed": elapsed, "restarts": ["web"] if elapsed == 2 else [],
            "programs": {"web": program, "reads": program | {"pss_mb": 10 * elapsed}},
            "load": ["reads", "notify"], "redis": {"work": redis, "sms": redis},
            "mariadb": {"connections": 9, "tables": tables},
            "latency": {"fast": {"p95_ms": p95}},
        }  # fmt: skip

    def _not_flat(self, rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
        return [(f.subject, f.column) for f in judgement.judge(rows) if not f.is_flat]

    def test_a_flat_run(self) -> None:
        rows = [self._sample(n) for n in range(1, 25)]
        findings = judgement.judge(rows)
        assert len(findings) > 10
        assert self._not_flat(rows) == []
        # The load's own programs grow with their books.
        assert "reads" not in {finding.subject for finding in findings}

    def test_growing_memory(self) -> None:
        rows = [self._sample(n, pss=50 + n) for n in range(1, 25)]
        assert self._not_flat(rows) == [("web", "pss_mb")]

    def test_a_slow_last_quarter(self) -> None:
        rows = [self._sample(n, p95=20 if n < 19 else 200) for n in range(1, 25)]
        assert self._not_flat(rows) == [("fast", "p95_ms")]

    def test_windows_with_a_restart_are_left_out(self) -> None:
        rows = [self._sample(n, p95=5000 if n == 2 else 20) for n in range(1, 25)]
        assert self._not_flat(rows) == []

    def test_too_few_samples(self) -> None:
        assert judgement.judge([self._sample(n) for n in range(1, 9)]) == []
        assert judgement.judge([]) == []


class TestBooks:
    def test_first_arrivals_count(self, tmp_path: Path) -> None:
        (tmp_path / "notify.book").write_text(
            "7 10.0 10.25 1 99\n6 10.0 10.0 0 -\n8 11.0 11.5 3 100\n9 12.0"
        )
        (tmp_path / "arrived.book").write_text("fast 7 10.0 10.5\nfast 7 10.0 12.5\n")
        found = books.Books(tmp_path)
        report = books.report(found.read())
        # A line that is not complete is read at the next look.
        assert found.accepted["notify"] == {7: "99", 8: "100"}
        assert report["fast"]["count"] == 1
        assert report["fast"]["max_ms"] == 500
        assert (found.repeat_counts()["fast"], found.retried["notify"]) == (1, 1)
        assert found.unsent["notify"] == 1
        with (tmp_path / "notify.book").open("a") as file:
            file.write(" 12.5 1 101\n")
        assert [arrival.place for arrival in found.read()] == ["notify:answer"]

    def test_a_message_may_come_twice_after_a_restart(self, tmp_path: Path) -> None:
        (tmp_path / "arrived.book").write_text(
            "fast 7 10.0 10.5\nfast 8 10.0 10.5\nfast 7 10.0 20.5\nfast 8 10.0 30.5\n"
            "dead 9 10.0 10.5\ndead 9 10.0 40.5\nslow 7 10.0 20.5\n"
        )
        found = books.Books(tmp_path)
        found.read()
        assert found.unexpected_repeats("fast") == {7, 8}
        assert found.unexpected_repeats("slow") == found.unexpected_repeats("dead") == set()
        found.restart_windows += [(5.0, 10.0), (15.0, 25.0)]
        assert found.unexpected_repeats("fast") == {8}
        line = ledger.line_of("notify, fast", "notify", "fast", found)
        assert line.problems == ["notify, fast: 1 messages came twice without a restart, such as 8"]

    def test_a_post_with_the_text_of_another(self) -> None:
        right, wrong = (calls.post_text(calls.Call(number, 1.5)) for number in (7, 8))
        wrong = wrong.replace(calls.trace(8), calls.trace(7))
        body = json.dumps({"results": [{"data": right}, {"data": wrong}]}, separators=(",", ":"))
        assert calls.posts_of(body.encode()) == [("feed", 7, 1.5), ("wrong-feed", 8, 1.5)]

    def test_a_timeline_with_doubles_and_the_text_of_another(self) -> None:
        posts = [calls.post_text(calls.Call(number, 1.5)) for number in (7, 7, 9)]
        line = ledger.Line("feed", 3)
        texts = [*posts, f"8 1.500000 {calls.trace(7)}"]
        assert ledger.timeline_numbers(texts, line) == {7, 8, 9}
        assert line.problems == [
            "feed: 1 posts are in the reader's timeline twice, such as 7",
            "feed: 1 posts of the timeline have the text of another, such as 8",
        ]

    @pytest.mark.django_db
    def test_a_short_message_with_the_text_of_another(self) -> None:
        now = timezone.now()
        SgipMt.objects.bulk_create(
            SgipMt(id=id, biz_id=biz, account_id=1, gateway_id=1, fee_type=1, agent_flag=0,
                   morelateto_mt_flag=2, priority=0, report_flag=1, accepted_at=now,
                   archived_at=now, user_number="8613800000000", final="delivered",
                   text=calls.sms_text(number))
            for id, biz, number in ((71, 1, 7), (81, 1, 7), (91, 2, 7))
        )  # fmt: skip
        endings, wrong_ids = ledger.archived(1, {71: 7, 81: 8, 91: 9})
        assert (endings, wrong_ids) == ({71: "delivered", 81: "delivered"}, [81])

    @pytest.mark.parametrize(
        ("answer", "id"),
        [
            (b'{"id":"251621165114385086","outcome":"created"}', "251621165114385086"),
            (b'{"outcome": "created", "ids": ["251621165114385086"]}', "251621165114385086"),
            (b"<value><string>251621165114385086</string></value>", "251621165114385086"),
            (b"<fault><value><string>123456789</string></value></fault>", ""),
        ],
    )
    def test_the_id_of_an_answer(self, answer: bytes, id: str) -> None:
        assert calls.accepted_id(answer) == id


class TestRequest:
    def test_one_refusal_is_not_the_end_of_a_run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(stage, "_AGAIN_SECONDS", 0.01)
        answers = iter([503, 429, 200, 404])

        class Timeline(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(next(answers))
                self.end_headers()
                self.wfile.write(b'{"results": []}')

            def log_message(self, format: str, *args: object) -> None:
                """No line for a request."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Timeline) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            ground: Any = SimpleNamespace(web_port=server.server_port)
            assert stage.request(ground, "/timeline", "mp") == {"results": []}
            with pytest.raises(HTTPError, match="404"):
                stage.request(ground, "/timeline", "mp")
            server.shutdown()
        assert list(answers) == []


class TestReader:
    """The load's reader, beside a timeline of three posts a page."""

    MIN_VISITS = 20

    def test_it_pages_on_until_a_post_is_known(self, tmp_path: Path) -> None:
        """After the first visit more posts become visible than a page has."""
        cursors, done = list[str](), threading.Event()

        class Timeline(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                cursor = parse_qs(urlsplit(self.path).query).get("cursor", [""])[0]
                cursors.append(cursor)
                visits = cursors.count("")
                older = range(int(cursor)) if cursor else range(3 if visits == 1 else 10)
                page = [*reversed(older)][:3]
                url = f"http://{self.headers['Host']}/timeline?limit=3&cursor={page[-1]}"
                posts = [{"data": calls.post_text(calls.Call(number, 1.5))} for number in page]
                answer = {"results": posts, "next": url if page[-1] else None}
                body = json.dumps(answer, separators=(",", ":")).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                # The one connection has read the answer to the page before.
                if not cursor and "4" in cursors and visits >= TestReader.MIN_VISITS:
                    done.set()

            def log_message(self, format: str, *args: object) -> None:
                """No line for a request."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Timeline) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            self._read(server.server_port, tmp_path, done)
            server.shutdown()
        seen = [line.split() for line in (tmp_path / "seen.book").read_text().splitlines()]
        assert sorted(int(number) for _place, number, _due, _at in seen) == list(range(10))
        # The page behind cursor 4 has the newest post of the first visit.
        assert [cursor for cursor in cursors if cursor] == ["7", "4"]

    def _read(self, port: int, folder: Path, done: threading.Event) -> None:
        program = [
            *(sys.executable, "-m", "bench.soak.caller", "--flow", "reads", "--token", "mp"),
            *("--port", str(port), "--rate", "100", "--connections", "1"),
            *("--book", str(folder / "reads.book"), "--seen", str(folder / "seen.book")),
        ]
        with subprocess.Popen(program, cwd=BASE_DIR) as reader:
            try:
                assert done.wait(60)
                reader.terminate()
                assert reader.wait(60) == 0
            finally:
                reader.kill()


class TestOptions:
    @pytest.mark.parametrize(
        ("texts", "reason"),
        [
            (["notify"], "FLOW=NUMBER"),
            (["post=3"], "the flows are"),
            (["feed=0"], "above 0"),
            (["notify=3"], "sms, crmsync, feed has none"),
        ],
    )
    def test_rates(self, texts: list[str], reason: str) -> None:
        with pytest.raises(InvalidInput, match=reason):
            command.rates(texts)

    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            (["soak"], "Say how long"),
            (["soak", "intake", "--hours", "1"], "alone"),
            (["soak", "--hours", "1", "--database", "sqlite"], "on MariaDB"),
            (["soak", "--hours", "0"], "above 0"),
            (["soak", "--hours", "8.5"], "at most 8: the books of a run are kept in memory"),
            (["intake", "--hours", "1"], "are for: bench soak"),
            (["soak", "--hours", "1", "--against", "bullmq"], "soak has no references"),
        ],
    )
    def test_refusals(self, arguments: list[str], reason: str) -> None:
        with pytest.raises(CommandError, match=reason):
            call_command("bench", *arguments)
