"""A database whose disk is full: no message is to blame, and nothing of the statement is stored."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import MySQLdb
import pytest

from bench.preload import Disk
from msgplatform.core.data import transactions
from tests.servers import DatabaseServer

_ROWS = 2000  # of half a page each: more than the room that a table has left


@pytest.fixture
def disk() -> Iterator[Disk]:
    with tempfile.TemporaryDirectory(prefix="mp-disk-") as folder:
        yield Disk(Path(folder) / "disk")


@pytest.fixture
def connection(disk: Disk) -> Iterator[Any]:
    class Server(DatabaseServer):  # type: ignore[misc, valid-type]  # of TEST_DATABASE
        @property
        def argv(self) -> list[str]:
            return ["/usr/bin/env", *disk.environment, *super().argv]

    with Server(disk.folder / "db", {"innodb_use_native_aio": 0}) as server:
        server.create("shop")
        yield server.connect("shop")


def test_a_full_disk_is_no_ones_fault(disk: Disk, connection: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("CREATE TABLE message (id INT PRIMARY KEY AUTO_INCREMENT, body VARCHAR(8000))")
    disk.fill()
    rows = [["x" * 7000]] * _ROWS
    with pytest.raises(MySQLdb.OperationalError) as raised:
        cursor.executemany("INSERT INTO message (body) VALUES (%s)", rows)
    assert transactions.error_code(raised.value) == 1114
    assert transactions.nothing_happened(raised.value)
    disk.make_room()
    cursor.execute("INSERT INTO message (body) VALUES (%s)", ["there is room"])
