"""Counts that are kept for a while: large ones, and for 20 times as long as they took."""

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from msgplatform.core.data.counting import MANY, REST, KeptCounts


class Table:
    """Rows that take `seconds` to count, by a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows, self.seconds = MANY, 0.5
        self.counted, self.now = 0, 1000.0
        monkeypatch.setattr("time.monotonic", lambda: self.now)

    def count(self) -> Mapping[str, int]:
        self.counted += 1
        self.now += self.seconds
        return {"all": self.rows}


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    return Table(monkeypatch)


def test_many_are_counted_now_and_then(table: Table) -> None:
    kept = KeptCounts(table.count)
    for _ in range(100):
        assert kept.read() == {"all": MANY}
    assert table.counted == 1
    table.rows, table.now = MANY + 7, table.now + REST * table.seconds
    assert kept.read() == {"all": MANY + 7}
    assert table.counted == 2


def test_counts_of_a_process_that_was_frozen_are_not_kept_for_hours(table: Table) -> None:
    kept, table.seconds = KeptCounts(table.count), 1200.0
    kept.read()
    for seconds, count in ((599, 1), (1, 2)):
        table.now += seconds
        kept.read()
        assert table.counted == count


def test_few_are_counted_each_time(table: Table) -> None:
    kept = KeptCounts(table.count)
    for table.rows in (5, 6, MANY - 1):
        assert kept.read() == {"all": table.rows}
    assert table.counted == 3


def test_an_error_is_raised_and_the_next_reads_again(table: Table) -> None:
    kept, errors = KeptCounts(lambda: table.count() if not errors else 1 / errors.pop()), [0]  # type: ignore[arg-type,return-value]
    with pytest.raises(ZeroDivisionError):
        kept.read()
    assert kept.read() == {"all": MANY}


def test_one_thread_counts_and_others_take_what_is_known(table: Table) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def count() -> Mapping[str, int]:
        found = table.count()
        if table.counted > 1:
            begun.set()
            assert go_on.wait(60)
        return found

    kept = KeptCounts(count)
    kept.read()
    table.rows, table.now = MANY + 7, table.now + 2 * REST
    with ThreadPoolExecutor() as pool:
        first = pool.submit(kept.read)
        assert begun.wait(60)
        assert kept.read() == {"all": MANY}
        go_on.set()
        assert first.result(60) == {"all": MANY + 7}
    assert table.counted == 2
