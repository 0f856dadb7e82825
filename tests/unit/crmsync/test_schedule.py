"""When a policy looks for changes."""

from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from crmsync.policies.schedule import next_look


def at(hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 11, 23, hour, minute, tzinfo=timezone.get_default_timezone())


@pytest.mark.parametrize(
    ("now", "due"),
    [
        (at(8, 30), at(9)),
        (at(9, 5), at(9, 5)),
        (at(14), at(8) + timedelta(days=1)),
    ],
    ids=["before it", "a little late", "held up until the hours are over"],
)
def test_a_look_by_crontab_is_within_the_hours(now: datetime, due: datetime) -> None:
    last = at(9) - timedelta(days=1)
    assert next_look(now, last, 10, "0 9 * * *", "08:00-10:00") == due


def test_a_policy_that_never_looked_does_so_at_once() -> None:
    assert next_look(at(9, 5), None, 10, "0 3 * * *", "") == at(9, 5)


def test_an_interval_counts_from_the_last_look() -> None:
    assert next_look(at(9, 5), at(9), 600, "", "") == at(9, 10)
    assert next_look(at(9, 5), at(8), 600, "", "") == at(9, 5)
