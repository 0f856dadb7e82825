"""The cursor of a bulk job: written and read, and what is refused."""

from datetime import UTC, datetime

import pytest

from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.bulk_pages import BulkCursor, read_id, read_time

BEGUN = datetime(2026, 11, 20, 8, 0, 0, 123456, tzinfo=UTC)


@pytest.mark.parametrize("position", ["7", "3,2026-11-20T08:00:00+00:00,9", "a|b"])
def test_what_was_written_is_read(position: str) -> None:
    text = BulkCursor(BEGUN).moved_to(position)
    assert BulkCursor.read(text) == BulkCursor(BEGUN, position)


def test_the_end() -> None:
    assert BulkCursor(BEGUN, "7").moved_to("") == ""


@pytest.mark.parametrize("text", ["", "x", "|7", "2026-11-20T08:00:00|7", "2026-02-30T00:00Z|"])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        BulkCursor.read(text)
    assert caught.value.field == "cursor"


@pytest.mark.parametrize("text", ["x", "-1", "1.5", "٣", str(2**63), "9" * 30])
def test_an_id_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        read_id(text)


def test_positions() -> None:
    assert (read_id(""), read_id("7"), read_id(str(2**63 - 1))) == (0, 7, 2**63 - 1)
    assert read_time(BEGUN.isoformat()) == BEGUN
