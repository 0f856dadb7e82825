"""Lines over time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from notify.feed.admin.chart import HEIGHT, WIDTH, Chart, Value, chart

BEGIN = datetime(2026, 11, 22, 8, tzinfo=UTC)


def drawn(values: Sequence[Value], **given: Any) -> Chart:
    times = [BEGIN + timedelta(minutes=n) for n in range(len(values))]
    return chart("Load", times, values, lambda value: f"{value:.1f}", **given)


def points(line: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in (point.split(",") for point in line.split())]


def test_the_line_goes_from_end_to_end_and_the_highest_is_seen() -> None:
    found = drawn([0.0, 2.0, 1.0])
    (line,) = map(points, found.lines)
    assert [x for x, _y in line] == [0, WIDTH / 2, WIDTH]
    (_, low), (_, high), (_, middle) = line
    assert low == HEIGHT
    assert 0 < high < HEIGHT * 0.1
    assert high < middle < low
    assert (found.highest, found.now) == ("2.0", "1.0")
    assert found.moments[1].title.endswith(": 2.0")


def test_where_nothing_is_known_the_line_is_broken() -> None:
    found = drawn([1.0, 1.0, None, 1.0, None])
    assert [len(points(line)) for line in found.lines] == [2, 2]  # one point is seen too
    assert len(found.moments) == 3
    assert drawn([None, None]).lines == []
    assert drawn([]).lines == []


def test_a_limit_is_inside_also_when_no_value_comes_near() -> None:
    found = drawn([0.1, 0.1], limit=1.0)
    assert 0 < float(found.limit) < HEIGHT * 0.1
    assert points(found.lines[0])[0][1] > HEIGHT * 0.8


def test_nothing_but_zeros_lies_on_the_ground() -> None:
    assert {y for _x, y in points(drawn([0.0, 0.0]).lines[0])} == {HEIGHT}
