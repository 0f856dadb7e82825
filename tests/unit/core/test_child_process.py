import time
from pathlib import Path

import pytest

from msgplatform.core.servers.child_process import pace, pause, quick_exits


@pytest.mark.parametrize(
    ("record", "now", "expected"),
    [
        ("", 100.0, 0),
        ("torn", 100.0, 0),
        ("99.0 0", 100.0, 1),
        ("99.0 7", 100.0, 8),
        ("90.0 7", 100.0, 0),  # it ran long enough
        ("500.0 7", 100.0, 0),  # from before the machine's last start
    ],
)
def test_quick_exits_in_a_row_are_counted(record: str, now: float, expected: int) -> None:
    assert quick_exits(record, now) == expected


def test_the_pause_grows_to_its_bound() -> None:
    pauses = [pause(quick, 5.0) for quick in range(9)]
    assert pauses == [0, 0, 0.25, 0.5, 1, 2, 4, 5, 5]
    assert pause(100_000, 5.0) == 5.0


def test_a_start_that_cannot_be_noted_waits_the_longest_and_goes_on(tmp_path: Path) -> None:
    begun = time.monotonic()
    pace(tmp_path / "no such folder" / "web", 0.2)
    assert time.monotonic() - begun >= 0.2
