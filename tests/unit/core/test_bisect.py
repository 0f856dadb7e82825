"""One item to blame is set aside; the others are done, in order."""

import time
from collections.abc import Iterator, Sequence

import pytest
from django.db.utils import OperationalError
from hypothesis import given, strategies as st
from redis.exceptions import ConnectionError as RedisAway

from msgplatform.core import alerts
from msgplatform.core.daemons import bisect


class Work:
    """Doubles numbers, all or nothing; negative ones cannot be doubled."""

    def __init__(self) -> None:
        self.aside: list[int] = []
        self.calls = 0

    def double(self, items: Sequence[int]) -> list[int]:
        self.calls += 1
        if bad := [item for item in items if item < 0]:
            raise ValueError(f"cannot double {bad}")
        return [2 * item for item in items]

    def set_aside(self, item: int, error: Exception) -> None:
        assert str(error) == f"cannot double [{item}]", "the error is the item's own"
        self.aside.append(item)


@given(st.lists(st.integers(-3, 50), max_size=60))
def test_all_but_the_bad_ones_in_order(items: list[int]) -> None:
    work = Work()
    done = bisect.isolate(items, work.double, work.set_aside)
    assert done == [2 * item for item in items if item >= 0]
    assert work.aside == [item for item in items if item < 0]


def test_one_bad_item_costs_few_calls() -> None:
    work = Work()
    bisect.isolate([*range(300), -1, *range(211)], work.double, work.set_aside)
    assert work.calls <= 1 + 2 * 9  # 2 for each time that 512 is halved


def test_nothing_is_no_work() -> None:
    work = Work()
    assert bisect.isolate([], work.double, work.set_aside) == []
    assert work.calls == 0


def test_a_server_that_is_away_is_nobodys_fault() -> None:
    def work(items: Sequence[int]) -> Sequence[int]:
        raise RedisAway("gone")

    aside: list[int] = []
    with pytest.raises(RedisAway):
        bisect.isolate([1, 2], work, lambda item, error: aside.append(item))
    assert aside == []


def test_who_is_blameless_can_be_told() -> None:
    work = Work()
    with pytest.raises(ValueError, match="cannot double"):
        bisect.isolate(
            [1, -1], work.double, work.set_aside, lambda error: isinstance(error, ValueError)
        )
    assert work.aside == []


def test_the_alert_of_what_is_set_aside_is_raised(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once for each item, with the error in the log."""
    raised: list[alerts.AlertEvent] = []
    monkeypatch.setattr(alerts, "stores", [])
    monkeypatch.setattr(alerts, "_handlers", {"test": raised.append})

    def set_aside(item: int, error: Exception) -> alerts.AlertEvent | None:
        return alerts.AlertEvent("test", f"{item} is bad", str(error), f"test:{item}")

    assert bisect.isolate([1, -1, 2, -2], Work().double, set_aside) == [2, 4]
    assert [(alert.key, alert.text) for alert in raised] == [
        ("test:-1", "cannot double [-1]"), ("test:-2", "cannot double [-2]"),
    ]  # fmt: skip
    told = [record for record in caplog.records if record.msg["event"] == "set_aside"]
    assert [record.msg["key"] for record in told] == ["test:-1", "test:-2"]
    # Where it is depends on whether the log was set up before.
    assert all(record.exc_info or record.msg["exc_info"] for record in told)


# -- errors of a database, by their numbers ------------------------------------------------------
class Table:
    """Takes rows; one of them is refused with an error number, or all are."""

    def __init__(self, number: int, poison: int | None) -> None:
        self.number, self.poison = number, poison
        self.rows: list[int] = []
        self.aside: list[int] = []

    def insert(self, items: Sequence[int]) -> Sequence[int]:
        if self.poison is None or self.poison in items:
            raise OperationalError(self.number, "refused")
        self.rows += items
        return items

    def turns(self, items: Sequence[int], most: int = 20) -> int:
        """The number of turns that raised before one did not, as a daemon's loop begins them."""
        for count in range(most):
            try:
                bisect.isolate(
                    [item for item in items if item not in self.rows],
                    self.insert,
                    lambda item, _error: self.aside.append(item),
                )
            except OperationalError:
                continue
            return count
        return most


@pytest.fixture
def no_refusals() -> Iterator[None]:
    bisect.refusals.clear()
    bisect.locked_items.clear()
    yield
    bisect.refusals.clear()
    bisect.locked_items.clear()


@pytest.mark.usefixtures("no_refusals")
class TestNumbers:
    @pytest.mark.parametrize("number", [1815, 1114, 1290, 1030])
    def test_a_row_that_alone_is_refused_steps_aside(self, number: int) -> None:
        table = Table(number, poison=5)
        assert table.turns(range(12)) == bisect.TRIES
        assert (len(table.rows), table.aside) == (11, [5])

    @pytest.mark.parametrize("number", [1114, 1290, 1142, 1205])
    def test_a_server_that_refuses_all_is_to_blame(self, number: int) -> None:
        table = Table(number, poison=None)
        assert table.turns(range(40)) == 20
        assert table.aside == []

    def test_a_row_alone_with_an_error_that_nobody_knows(self) -> None:
        table = Table(1815, poison=5)
        assert table.turns([5]) == bisect.TRIES
        assert table.aside == [5]

    @pytest.mark.parametrize("number", [1205, 1213, 3572])
    def test_a_locked_row_waits_and_holds_up_nobody(self, number: int) -> None:
        table = Table(number, poison=5)
        assert table.turns(range(12)) == 20
        assert (len(table.rows), table.aside) == (11, [])

    def test_a_row_whose_lock_does_not_end_is_set_aside(self) -> None:
        table, begun = Table(1205, poison=5), time.monotonic()
        while not table.aside:
            assert time.monotonic() - begun < 60
            table.turns(range(12), most=1)
            time.sleep(0.2)  # between two turns of a program
        assert (len(table.rows), table.aside) == (11, [5])
        assert time.monotonic() - begun > bisect.LOCK_SECONDS

    def test_a_row_that_was_locked_comes_last(self) -> None:
        table = Table(1205, poison=5)
        with pytest.raises(bisect.ItemsLocked) as caught:
            bisect.isolate([5, 6], table.insert, lambda item, error: None)
        assert (caught.value.items, caught.value.args[0]) == ([5], 1205)
        table.poison = -1
        assert bisect.isolate([4, 5, 7], table.insert, lambda item, error: None) == [4, 7, 5]

    def test_a_locked_row_alone_is_told_from_a_server_that_is_away(self) -> None:
        table = Table(1205, poison=5)
        for _ in range(5):
            with pytest.raises(bisect.ItemsLocked) as caught:
                bisect.isolate([5], table.insert, lambda item, error: None)
            assert caught.value.items == [5]

    def test_few_calls_wait_for_locks(self) -> None:
        """Each waits a second: many locked rows do not hold up the others for long."""
        waits: list[Sequence[int]] = []
        done: set[int] = set()

        def work(items: Sequence[int]) -> Sequence[int]:
            if any(item % 50 == 7 for item in items):
                waits.append(items)
                raise OperationalError(1205, "refused")
            done.update(items)
            return items

        for _ in range(10):
            count = len(waits)
            with pytest.raises(bisect.ItemsLocked):
                bisect.isolate(
                    [n for n in range(500) if n not in done], work, lambda item, error: None
                )
            assert len(waits) - count <= 10
        assert len(done) == 490

    @pytest.mark.parametrize("number", [2006, 2013, 2002, 4031])
    def test_a_connection_that_broke_is_no_answer(self, number: int) -> None:
        table = Table(number, poison=5)
        assert table.turns(range(12)) == 20
        assert (table.rows, table.aside) == ([], [])
