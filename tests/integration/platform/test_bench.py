"""The bench command on its own servers, and what makes a bench fail instead of giving a figure."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from bench.crmsync import leads
from bench.feed import people, posts
from bench.gateway import sgip, sgip_messages, sms_messages, sms_rows
from bench.gateway.sgip_sp import submit
from bench.harness import messages, outcome
from bench.harness.measure import Stretch
from bench.harness.processes import BenchFailed
from bench.notify import notify_rows
from bench.references import echo_frames
from gateway.models import SgipMt
from gateway.sgip import Report, ReportResp, SubmitResp
from msgplatform.core.servers.embedded import MariaDb
from msgplatform.env import BASE_DIR
from msgplatform.models import Biz
from notify import intake
from notify.models import BizMsg

NAMES = [
    "intake", "intake-batch", "maker", "sender", "http-engine", "marker", "notify", "latency",
    "notify-at-scale", "sgip", "sms", "sync", "feed",
    "feed-visible", "feed-at-scale", "feed-backlog",
]  # fmt: skip
SECONDS = 1.0


def bench(
    *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", "bench", *arguments],
        cwd=BASE_DIR, capture_output=True, text=True, timeout=900, check=False,
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


class TestLatency:
    def test_idle_and_at_half_of_capacity(self) -> None:
        said = bench("latency", "--json", "--seconds", "3", "--runs", "1")
        assert said.returncode == 0, said.stderr
        times = json.loads(said.stdout)["answer_ms"]
        assert set(times) == {"ours", "half-of-capacity"}
        assert all(0 <= each["p50_ms"] <= each["p95_ms"] for each in times.values())


class TestSgip:
    SEQUENCE = (3010012345, 1121083000, 7)

    def test_both_echoes_are_measured(self) -> None:
        said = bench("sgip", "--json", "--seconds", "1", "--runs", "1")
        assert said.returncode == 0, said.stderr
        result = json.loads(said.stdout)
        assert set(result["against"]) == {"framed-echo", "framed-echo-streams"}
        assert min(result["rate"], *result["against"].values()) > 500
        assert result["rss_of"] == ["smg", "sp"]
        assert all(result["cpu_us"]["ours"][end] > 0 for end in ("smg", "sp"))

    def test_the_echoes_frames_have_the_sizes_of_ours(self) -> None:
        user = sgip_messages.user(5)
        report = Report(self.SEQUENCE, self.SEQUENCE, 0, user, 0, 0)
        ours = [submit(self.SEQUENCE, 5), report]
        echoed = [echo_frames.submit(5), echo_frames.report(5)]
        assert [len(each.encode()) for each in ours] == list(map(len, echoed))
        for response in (SubmitResp(self.SEQUENCE), ReportResp(self.SEQUENCE)):
            assert len(response.encode()) == len(echo_frames.response(5))

    @pytest.mark.parametrize(
        "seen", [[0], [0, 1, 1], [0, 2]], ids=["lost", "twice", "another number"]
    )
    def test_records(self, seen: list[int], tmp_path: Path) -> None:
        def written(numbers: list[int]) -> Counter[int]:
            records = sgip_messages.Records()
            for number in numbers:
                records.add(sgip_messages.record(number, sgip_messages.content(number)))
            records.write(tmp_path / "seen")
            return sgip_messages.read(tmp_path / "seen")

        sgip.same("ours", "Submits", written([1, 0]), written([0, 1]))
        with pytest.raises(BenchFailed, match="Submits"):
            sgip.same("ours", "Submits", written(seen), written([0, 1]))


class TestSms:
    def test_both_sides_take_every_message_all_the_way(self) -> None:
        said = bench("sms", "--json", "--seconds", "1.5", "--runs", "1")
        assert said.returncode == 0, said.stderr
        result = json.loads(said.stdout)
        assert set(result["against"]) == {"naive", "naive-least"}
        assert min(result["rate"], *result["against"].values()) > 5
        assert {"web", "run_sms_sender", "run_sms_receiver", "run_report_forwarder",
                "run_data_pump", "run_maker"} <= set(result["rss_of"])  # fmt: skip
        assert result["load_cpu"]["ours"] > 0

    @pytest.fixture
    def archived(self, db: None) -> dict[int, int]:
        """Two messages in the archive; id → number."""
        accepted = {11: 0, 12: 1}
        now = timezone.now()
        for row_id, number in accepted.items():
            SgipMt.objects.create(
                id=row_id, biz_id=1, account_id=1, gateway_id=1, fee_type=1, agent_flag=0,
                morelateto_mt_flag=2, priority=0, report_flag=1, accepted_at=now, archived_at=now,
                user_number=f"86{sms_messages.recipient(number)}", final="delivered",
                text=sms_messages.text(number), reference=sms_messages.key("a", number),
            )  # fmt: skip
        return accepted

    def test_the_archive(self, archived: dict[int, int]) -> None:
        sms_rows.check_archive(archived, "a")
        with pytest.raises(BenchFailed, match="2 were found, 3 were expected"):
            sms_rows.check_archive({**archived, 13: 2}, "a")
        with pytest.raises(BenchFailed, match="12"):
            sms_rows.check_archive({11: 0, 13: 1}, "a")
        SgipMt.objects.filter(id=11).update(final="unknown")
        with pytest.raises(BenchFailed, match="unknown"):
            sms_rows.check_archive(archived, "a")

    @pytest.mark.parametrize(
        ("ids", "state"), [([11], "delivered"), ([11, 12, 12], "delivered"), ([11, 12], "failed")],
        ids=["lost", "twice", "another ending"],
    )  # fmt: skip
    def test_what_was_heard(self, ids: list[int], state: str, tmp_path: Path) -> None:
        accepted = {11: 0, 12: 1}

        def body(row_id: int, state: str) -> str:
            number = accepted[row_id]
            data = {
                "id": str(row_id), "reference": sms_messages.key("a", number), "state": state,
                "to": f"86{sms_messages.recipient(number)}", "error_code": 0, "parts": 1,
            }  # fmt: skip
            return json.dumps({"type": "sms.report", "data": data}) + "\n"

        file = tmp_path / "heard"
        file.write_text("".join(body(row_id, "delivered") for row_id in accepted))
        sms_rows.check_heard(file, accepted, "a")
        file.write_text("".join(body(row_id, state) for row_id in ids))
        with pytest.raises(BenchFailed):
            sms_rows.check_heard(file, accepted, "a")

    @pytest.mark.parametrize(
        "lines", [[(1, 0)], [(1, 0), (2, 1), (3, 1)], [(1, 0), (1, 1)]],
        ids=["lost", "twice", "one sequence for two"],
    )  # fmt: skip
    def test_what_the_gateway_took(self, lines: list[tuple[int, int]], tmp_path: Path) -> None:
        def written(pairs: list[tuple[int, int]]) -> Path:
            file = tmp_path / "accepted.log"
            file.write_text(
                "".join(f"3:4:{n}\t86{sms_messages.recipient(m)}\t1/1\t0\n" for n, m in pairs)
            )
            return file

        accepted = {11: 0, 12: 1}
        sms_rows.check_submitted(written([(1, 0), (2, 1)]), accepted)
        with pytest.raises(BenchFailed):
            sms_rows.check_submitted(written(lines), accepted)


class TestFeed:
    """Each bench as a whole, with as little as is enough."""

    @pytest.mark.parametrize(
        ("name", "others"),
        [
            ("feed", {"insert-select", "python-loop"}),
            ("feed-visible", {"10k-followers", "100k-followers", "100k-merged"}),
            ("feed-at-scale", {"at-100k-entries", "unread", "unread-at-100k-entries",
                               "any-reader"}),
            ("feed-backlog", {"backlog-10k", "beside-a-report"}),
        ],
    )  # fmt: skip
    def test_all_sides(self, name: str, others: set[str], tmp_path: Path) -> None:
        plans = tmp_path / "plans.md"
        said = bench(
            *(name, "--json", "--seconds", "0.1", "--runs", "1"),
            environment={**os.environ, "BENCH_ROWS": "5000,50000", "BENCH_PLANS": str(plans)},
        )
        assert said.returncode == 0, said.stderr
        result = json.loads(said.stdout)
        assert set(result["against"]) == others
        assert min(result["rate"], *result["against"].values()) > 0
        if name in ("feed-at-scale", "feed-backlog"):
            row = re.compile(r"^\| [^|]+ \| \d+ \| ([\d,]+) \| ([\d,]+) \|$", re.MULTILINE)
            rows = row.findall(plans.read_text())
            reads = [[int(count.replace(",", "")) for count in pair] for pair in rows]
            assert len(reads) >= 3
            assert all(large <= 1.1 * small + 10 for small, large in reads), reads

    @pytest.fixture
    def cursor(self, db: None, mariadb: MariaDb) -> Iterator[Any]:
        """Five handled posts of twelve, with four friends each."""
        mariadb.create("bench_feed")
        connection = mariadb.connect("bench_feed")
        with connection.cursor() as cursor:
            for table in (
                "feed_user (biz_id INT, uid CHAR(64), friends INT, followers INT, merging INT, "
                "active INT, visit_date DATETIME(6), read_id BIGINT, floor BIGINT)",
                "friend (biz_id INT, uid CHAR(64), relation CHAR(8), fri_uid CHAR(64), "
                "delivery INT, create_date DATETIME(6))",
                "feed (id BIGINT PRIMARY KEY, biz_id INT, uid CHAR(64), topic CHAR(8), "
                "app_id CHAR(32), src_type CHAR(32), data TEXT, create_date DATETIME(6))",
                "eventqueue (qid BIGINT PRIMARY KEY, biz_id INT, topic CHAR(8), kind CHAR(8), "
                "status INT, data TEXT, uid CHAR(64), create_date DATETIME(6), "
                "handle_date DATETIME(6), position CHAR(80), reason TEXT)",
                "feed_broadcast (biz_id INT, fri_uid CHAR(64), feed_id BIGINT, "
                "create_date DATETIME(6), app_id CHAR(32), src_type CHAR(32))",
            ):
                cursor.execute(f"CREATE TABLE {table}")
            people.fill(cursor, 30, 4)
            posts.fill(cursor, 1000, 12, 30, handled=5)
            posts.fill_entries(cursor)
            yield cursor
        connection.close()
        mariadb.execute("DROP DATABASE bench_feed")

    def test_what_is_written_is_right(self, cursor: Any) -> None:
        assert posts.check_written(cursor, 4) == 20
        cursor.execute("SELECT COUNT(DISTINCT uid, fri_uid) FROM friend WHERE uid <> fri_uid")
        assert cursor.fetchone() == (120,)
        cursor.execute(
            "SELECT COUNT(*) FROM friend a JOIN friend b ON b.uid = a.fri_uid AND b.fri_uid = a.uid"
        )
        assert cursor.fetchone() == (120,)

    @pytest.mark.parametrize(
        "fault",
        [
            "DELETE FROM feed_broadcast LIMIT 1",
            "INSERT INTO feed_broadcast SELECT * FROM feed_broadcast LIMIT 1",
            "UPDATE feed_broadcast SET fri_uid = 'somebody' LIMIT 1",
            "UPDATE feed_broadcast SET app_id = 'other' LIMIT 1",
            "UPDATE feed_broadcast SET create_date = create_date + INTERVAL 1 SECOND LIMIT 1",
            "UPDATE eventqueue SET status = 1 WHERE status = 0 LIMIT 1",
            "UPDATE eventqueue SET handle_date = NULL",
        ],
    )
    def test_what_is_written_is_wrong(self, cursor: Any, fault: str) -> None:
        cursor.execute(fault)
        with pytest.raises(BenchFailed):
            posts.check_written(cursor, 4)


class TestLeads:
    """The check of the bench `sync`, on a copy that is right at first."""

    @pytest.fixture
    def cursor(self, mariadb: MariaDb) -> Iterator[Any]:
        mariadb.create("bench_leads")
        connection = mariadb.connect("bench_leads")
        connection.set_character_set("utf8mb4")
        with connection.cursor() as cursor:
            cursor.execute(
                "CREATE TABLE lead (id BIGINT PRIMARY KEY, biz_id INT, appkey TEXT, uid TEXT, "
                "name TEXT, phone TEXT, extra JSON, UpdateTime DATETIME(6), IsDelete BOOL, "
                "version INT)"
            )
            cursor.execute(
                "CREATE TRIGGER changed BEFORE UPDATE ON lead FOR EACH ROW "
                "SET NEW.UpdateTime = UTC_TIMESTAMP(6), NEW.version = OLD.version + 1"
            )
            leads.fill(cursor, 1_500)
            assert leads.change(cursor, 1_500, 10, 3) == 150
            cursor.execute(
                "CREATE TABLE copy SELECT id, appkey, uid, name, phone, extra, "
                "IsDelete AS is_delete, version FROM lead"
            )
            yield cursor
        connection.close()
        mariadb.execute("DROP DATABASE bench_leads")

    def test_equal(self, cursor: Any) -> None:
        assert leads.check_equal(cursor, "lead", "copy") == 1_500
        cursor.execute("SELECT COUNT(*), COUNT(DISTINCT UpdateTime) FROM lead WHERE version = 2")
        assert cursor.fetchone() == (150, 2)
        cursor.execute("SELECT COUNT(*) FROM lead WHERE IsDelete")
        assert cursor.fetchone() == (3,)

    @pytest.mark.parametrize(
        "fault",
        [
            "DELETE FROM copy ORDER BY id LIMIT 1",
            "INSERT INTO copy SELECT * FROM copy LIMIT 1",
            "UPDATE copy SET id = 1 ORDER BY id LIMIT 1",
            "UPDATE copy SET name = UPPER(CONCAT(name, ' ')) ORDER BY id LIMIT 1",
            "UPDATE copy SET phone = NULL ORDER BY id LIMIT 1",
            "UPDATE copy SET extra = JSON_SET(extra, '$.budget', 'x') ORDER BY id LIMIT 1",
            "UPDATE copy SET version = 1 WHERE version = 2",
            "UPDATE copy SET is_delete = 0",
        ],
    )
    def test_differing(self, cursor: Any, fault: str) -> None:
        cursor.execute(fault)
        with pytest.raises(BenchFailed):
            leads.check_equal(cursor, "lead", "copy")


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
