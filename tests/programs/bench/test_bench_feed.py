"""Benches of Feed on their own servers, and what makes one fail instead of giving a figure."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.feed import people, posts
from bench.harness.mariadb import MariaDb
from bench.harness.processes import BenchFailed
from tests.programs.bench.bench_command import bench, measured_or_left_out


class TestFeed:
    """Each bench as a whole, with as little as is enough."""

    @pytest.mark.full
    @pytest.mark.parametrize(
        ("name", "sizes", "others"),
        [
            ("feed", "", {"insert-select", "python-loop", "stream-framework"}),
            ("feed-visible", "", {"10k-followers", "100k-followers", "100k-merged"}),
            ("feed-at-scale", "1000,20000", {"at-100k-entries", "unread", "unread-at-100k-entries",
                                              "any-reader"}),
            ("feed-backlog", "5000,15000", {"backlog-10k", "beside-a-report"}),
        ],
    )  # fmt: skip
    def test_all_sides(self, name: str, sizes: str, others: set[str], tmp_path: Path) -> None:
        plans = tmp_path / "plans.md"
        environment = {"BENCH_ROWS": sizes or "1,1", "BENCH_PLANS": str(plans)}
        result = bench(name, "--seconds", "0.1", environment=environment)
        assert measured_or_left_out(result) == others
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
