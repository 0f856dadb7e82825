"""Tables of leads at sources, made by SQL, and writers that keep a log of what they committed.

A log line is (key, version, deleted, written, committed): the version is counted by the writer.
"""

import json
import random
import sqlite3
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import MySQLdb

from crmsync.poller.reading.source import Columns

LEADS = Columns(
    key="id",
    update_time="UpdateTime",
    is_deleted="IsDelete",
    version="version",
    values=("appkey", "uid", "name", "phone", "extra"),
)
MYSQL_TABLE = """
CREATE TABLE {table} (
    id BIGINT PRIMARY KEY AUTO_INCREMENT, appkey VARCHAR(32) NOT NULL, uid VARCHAR(64) NOT NULL,
    name VARCHAR(64) NOT NULL, phone VARCHAR(32) NOT NULL, extra LONGTEXT NOT NULL,
    UpdateTime {kind} NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6),
    IsDelete BOOL NOT NULL DEFAULT 0, version INT NOT NULL DEFAULT 1, INDEX (UpdateTime, id)
) ENGINE=InnoDB
"""
SQLITE_TABLE = """
CREATE TABLE `lead` (
    id INTEGER PRIMARY KEY, appkey TEXT NOT NULL, uid TEXT NOT NULL, name TEXT NOT NULL,
    phone TEXT NOT NULL, extra TEXT NOT NULL,
    UpdateTime DATETIME NOT NULL DEFAULT (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')),
    IsDelete BOOL NOT NULL DEFAULT 0, version INTEGER NOT NULL DEFAULT 1
);
CREATE INDEX lead_time ON lead (UpdateTime, id);
"""
INSERT = (
    "INSERT INTO `lead` (appkey, uid, name, phone, extra) "
    "VALUES ('demo', '{uid}', 'n', '13', '{{}}')"
)
Log = dict[int, tuple[int, bool]]  # key → the last committed (version, deleted)


def write(
    run: Callable[[str], int], number: int, changes: int, longest: float, touch: str
) -> dict[str, Any]:
    """Insert, update and delete rows in transactions, 5 % of which are rolled back.

    `run` runs a statement and returns the key of what it inserted. A third of the transactions are
    held open, up to `longest` seconds. Returns the log: committed rows, and how many changes.
    """
    chance = random.Random(number)
    log: Log = {}
    done = 0
    while done < changes:
        run("BEGIN")
        mine: Log = {}
        size = chance.randint(1, 8)
        for n in range(size):
            key = chance.choice(list(log)) if log and chance.random() < 0.4 else 0
            if not key:
                mine[run(INSERT.format(uid=f"{number}-{done}-{n}"))] = (1, False)
                continue
            version, deleted = (mine.get(key) or log[key])[0] + 1, chance.random() < 0.2
            run(
                f"UPDATE `lead` SET IsDelete = {deleted:d}, version = {version}{touch} "
                f"WHERE id = {key}"
            )
            mine[key] = (version, deleted)
        if chance.random() < 0.3:
            time.sleep(chance.random() * longest)
        if chance.random() < 0.05:
            run("ROLLBACK")
            continue
        run("COMMIT")
        log |= mine
        done += size
    return {"log": log, "changes": done}


def mysql_writer(
    address: dict[str, Any], zone: str, number: int, changes: int, longest: float
) -> dict[str, Any]:
    connection = MySQLdb.connect(**address, autocommit=True)
    cursor = connection.cursor()
    if zone:
        cursor.execute("SET time_zone = %s", [zone])

    def run(statement: str) -> int:
        cursor.execute(statement)
        return int(cursor.lastrowid or 0)

    return write(run, number, changes, longest, "")


def sqlite_writer(
    file: str, immediate: str, number: int, changes: int, longest: float
) -> dict[str, Any]:
    connection = sqlite3.connect(file, isolation_level=None, timeout=600)

    def run(statement: str) -> int:
        if statement == "BEGIN":
            statement = immediate
        return int(connection.execute(statement).lastrowid or 0)

    now = ", UpdateTime = STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')"
    return write(run, number, changes, longest, now)


class Writers:
    """Writer processes; their logs are joined when all have ended."""

    def __init__(self, directory: Path, work: Callable[..., dict[str, Any]], *args: Any) -> None:
        self._directory = directory
        self._work = work
        self._args = args
        self._processes: list[Any] = []

    def start(self, count: int, changes: int, longest: float) -> None:
        # Forked from a process without connections, which has imported what they need.
        context = get_context("forkserver")
        context.set_forkserver_preload([__name__])
        for number in range(count):
            args = (self._directory / f"{number}.json", self._work, *self._args)
            process = context.Process(
                target=_write_log, args=(*args, number, changes // count, longest)
            )
            process.start()
            self._processes.append(process)

    def running(self) -> bool:
        return any(process.is_alive() for process in self._processes)

    def logs(self) -> tuple[Log, int]:
        """The last committed state of every row, and how many changes were committed."""
        log: Log = {}
        changes = 0
        for number, process in enumerate(self._processes):
            process.join()
            assert process.exitcode == 0
            text = (self._directory / f"{number}.json").read_text(encoding="utf-8")
            made = json.loads(text)
            log |= {int(key): (version, gone) for key, (version, gone) in made["log"].items()}
            changes += made["changes"]
        return log, changes

    def kill(self) -> None:
        for process in self._processes:
            with suppress(ValueError):
                process.kill()
                process.join()


def _write_log(file: Path, work: Callable[..., dict[str, Any]], *args: Any) -> None:
    file.write_text(json.dumps(work(*args)), encoding="utf-8")


def last_read(rows: Iterable[Any]) -> Log:
    """What whoever read these rows in this order believes."""
    return {row.key: (row.version, row.deleted) for row in rows}
