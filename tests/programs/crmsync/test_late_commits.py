"""Nothing is lost while writers commit late: the expectation is the writers' own log.

The full load (MSGPLATFORM_FULL_LOAD) is 15,000 changes and transactions held open up to 10 s.
"""

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec import structs

from bench.harness.mariadb import MariaDb
from crmsync.poller.reading.horizon import MARGIN, Reading, ServerHorizon
from crmsync.poller.reading.increment import Increment, Row, Watermark
from crmsync.poller.reading.source import Source
from tests.support.lead_tables import (
    LEADS,
    SQLITE_TABLE,
    Log,
    Writers,
    last_read,
    mysql_writer,
    sqlite_writer,
)
from tests.support.sources import NAME

FULL = bool(os.environ.get("MSGPLATFORM_FULL_LOAD"))
# Transactions are held open for longer than MARGIN, or nothing is lost without the horizon.
CHANGES, LONGEST, WRITERS = (15_000, 10.0, 8) if FULL else (600, 3.5, 8)
SECONDS = 1_800.0

MakeSource = Callable[..., Source]


@pytest.fixture
def mysql_writers(tmp_path: Path, mariadb: MariaDb) -> Iterator[Callable[[str], Writers]]:
    started = []

    def start(zone: str = "") -> Writers:
        address = {"unix_socket": str(mariadb.socket), "user": "root", "db": NAME}
        writers = Writers(tmp_path, mysql_writer, address, zone)
        started.append(writers)
        writers.start(WRITERS, CHANGES, LONGEST)
        return writers

    yield start
    for writers in started:
        writers.kill()


class Reader:
    """Reads on and on, as a poller would."""

    def __init__(self, source: Source, pause: float = 0.05, limit: int = 500) -> None:
        self.increment = Increment(source)
        self.pause, self.limit = pause, limit
        self.watermark: Watermark | None = None
        self.rows: list[Row] = []
        self.oldest = timedelta(0)

    def turn(self) -> None:
        page = self.increment.read(self.watermark, self.limit)
        self.rows += page.rows
        self._check_order(page.watermark)
        self.watermark = page.watermark
        self.increment.confirm(page)
        self.oldest = max(self.oldest, page.facts.age)
        if not page.more:
            time.sleep(self.pause)

    def _check_order(self, new: Watermark | None) -> None:
        if self.watermark:
            assert new
            assert (new.time, new.key) >= (self.watermark.time, self.watermark.key)

    def until_the_end(self, writers: Writers, wanted: bool = True) -> tuple[Log, int]:
        """Read while they write, then until all is read that will be; their log."""
        deadline = time.monotonic() + SECONDS
        while writers.running():
            self.turn()
            assert time.monotonic() < deadline
        log, changes = writers.logs()
        while True:
            page = self.increment.read(self.watermark, self.limit)
            self.turn()
            if not page.rows and not page.facts.waiting:
                return log, changes
            assert time.monotonic() < deadline


def lost(log: Log, rows: list[Row]) -> int:
    read = last_read(rows)
    return sum(read.get(key) != state for key, state in log.items())


def report(capsys: pytest.CaptureFixture[str], name: str, reader: Reader, log: Log, n: int) -> None:
    with capsys.disabled():
        print(
            f"\n{name}: {n} changes, {len(log)} rows, {len(reader.rows)} read "
            f"(x {len(reader.rows) / n:.3f}), {lost(log, reader.rows)} lost, "
            f"horizon at most {reader.oldest.total_seconds():.1f} s old"
        )


@pytest.mark.parametrize(
    ("kind", "writer_zone", "source_zone"),
    [("TIMESTAMP(6)", "", "UTC"), ("DATETIME(6)", "-03:30", "-03:30")],
    ids=["timestamp", "datetime-of-another-zone"],
)
def test_nothing_is_lost(
    kind: str,
    writer_zone: str,
    source_zone: str,
    foreign: MakeSource,
    mysql_writers: Callable[[str], Writers],
    capsys: pytest.CaptureFixture[str],
) -> None:
    reader = Reader(foreign(kind, zone=source_zone))
    log, changes = reader.until_the_end(mysql_writers(writer_zone))
    report(capsys, kind, reader, log, changes)
    assert lost(log, reader.rows) == 0
    assert len(reader.rows) <= 1.2 * changes
    assert reader.increment.read(reader.watermark, 1).facts.exact


def test_without_the_bound_rows_are_lost(
    foreign: MakeSource,
    mysql_writers: Callable[[str], Writers],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The same test with a horizon that no transaction bounds, only the margin: it can fail."""
    read = ServerHorizon.read

    def unbounded(horizon: ServerHorizon) -> Reading:
        reading = read(horizon)
        moment = reading.now.replace(microsecond=0) - MARGIN
        until = f"{moment:%Y-%m-%d %H:%M:%S.%f}"
        return structs.replace(reading, horizon=moment, safe_until=until, until=until)

    monkeypatch.setattr(ServerHorizon, "read", unbounded)
    reader = Reader(foreign())
    log, changes = reader.until_the_end(mysql_writers(""))
    report(capsys, "without the bound", reader, log, changes)
    assert lost(log, reader.rows) > 0


def test_without_the_privilege_the_lag_bounds_it(
    foreign: MakeSource,
    mysql_writers: Callable[[str], Writers],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A user without PROCESS: nothing is lost that is committed within the lag, and what was read
    early is not read again."""
    source = foreign("DATETIME(6)", process=False, zone="Asia/Shanghai")
    # Longer than transactions are held open, by far: the machine may be busy.
    reader = Reader(replace(source, lag=timedelta(seconds=60)))
    log, changes = reader.until_the_end(mysql_writers("+08:00"))
    report(capsys, "without PROCESS", reader, log, changes)
    assert lost(log, reader.rows) == 0
    assert len(reader.rows) <= 1.2 * changes
    assert not reader.increment.read(reader.watermark, 1).facts.exact


def test_sqlite_with_concurrent_writers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "leads.db"
    made = sqlite3.connect(file)
    made.execute("PRAGMA journal_mode = WAL")
    made.executescript(SQLITE_TABLE)
    made.close()
    reader = Reader(Source("lead", LEADS, f"sqlite:///{file}"), pause=0.002)
    writers = Writers(tmp_path, sqlite_writer, str(file), "BEGIN IMMEDIATE")
    try:
        # They write one after another, so that what is held open adds up.
        writers.start(4, 1_000, 0.05)
        log, changes = reader.until_the_end(writers)
    finally:
        writers.kill()
    report(capsys, "SQLite", reader, log, changes)
    assert lost(log, reader.rows) == 0
    assert len(reader.rows) <= 1.2 * changes
