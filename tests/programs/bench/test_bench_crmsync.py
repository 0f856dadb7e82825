"""What makes the bench `sync` fail instead of giving a figure."""

from collections.abc import Iterator
from typing import Any

import pytest

from bench.crmsync import leads
from bench.harness.mariadb import MariaDb
from bench.harness.processes import BenchFailed


class TestLeads:
    """The check of the bench `sync`, on a copy that is right at first."""

    @pytest.fixture
    def cursor(self, mariadb: MariaDb) -> Iterator[Any]:
        mariadb.create("bench_leads")
        connection = mariadb.connect("bench_leads")
        connection.set_character_set("utf8mb4")
        with connection.cursor() as cursor:
            cursor.execute(
                "CREATE TABLE `lead` (id BIGINT PRIMARY KEY, biz_id INT, appkey TEXT, uid TEXT, "
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
                "IsDelete AS is_delete, version FROM `lead`"
            )
            yield cursor
        connection.close()
        mariadb.execute("DROP DATABASE bench_leads")

    def test_equal(self, cursor: Any) -> None:
        assert leads.check_equal(cursor, "lead", "copy") == 1_500
        cursor.execute("SELECT COUNT(*), COUNT(DISTINCT UpdateTime) FROM `lead` WHERE version = 2")
        assert cursor.fetchone() == (150, 2)
        cursor.execute("SELECT COUNT(*) FROM `lead` WHERE IsDelete")
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
