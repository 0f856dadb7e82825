"""Bounds of a filter: a time before any message is a bound, not the lack of one."""

import pytest

from msgplatform.core.errors import InvalidInput
from msgplatform.messages import filters

FIELDS = {"since": filters.SINCE, "until": filters.UNTIL}


@pytest.mark.parametrize("until", ["2024-12-31", "2020-01-01 12:00", "0001-01-01"])
def test_a_time_before_all_messages_is_the_first_id(until: str) -> None:
    assert filters.read_filter(FIELDS, {"until": until}) == {"until": 0}


def test_a_bound_that_is_not_given_is_not_there() -> None:
    assert filters.read_filter(FIELDS, {"since": " ", "until": ""}) == {}


@pytest.mark.parametrize(
    ("since", "until"),
    [
        ("2026-11-20", "2026-11-20"),
        ("2026-11-20 14:30", "2026-11-20 14:29"),
        ("2026-11-20T14:30+08:00", "2026-11-20T06:30Z"),
        ("2020-01-01", "2019-01-01"),
    ],
)
def test_until_is_later_than_since(since: str, until: str) -> None:
    with pytest.raises(InvalidInput, match="later than") as caught:
        filters.read_filter(FIELDS, {"since": since, "until": until})
    assert caught.value.field == "until"


@pytest.mark.parametrize(
    ("since", "until"), [("2026-11-20", "2026-11-20 00:00:01"), ("2019-01-01", "2020-01-01")]
)
def test_a_period_may_be_short_or_long_ago(since: str, until: str) -> None:
    found = filters.read_filter(FIELDS, {"since": since, "until": until})
    assert found["since"] <= found["until"]
