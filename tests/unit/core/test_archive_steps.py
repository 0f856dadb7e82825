"""Months and days of an archive's partitions."""

from datetime import UTC, datetime

from msgplatform.core.archive.description import DAILY, MONTHLY, Step
from msgplatform.core.archive.kept import KeptData


def names(step: Step, start: datetime, now: datetime) -> list[str]:
    return [step.name(begin) for begin in step.until_ahead(start, now)]


def at(year: int, month: int, day: int, hour: int = 0, minute: int = 0) -> datetime:
    return datetime(year, month, day, hour, minute, tzinfo=UTC)


def test_months() -> None:
    assert names(MONTHLY, at(2027, 12, 31, 23), at(2028, 2, 29, 12)) == [
        "p202712", "p202801", "p202802", "p202803", "p202804",
    ]  # fmt: skip
    assert MONTHLY.end(at(2027, 2, 1)) == at(2027, 3, 1)


def test_days() -> None:
    assert names(DAILY, at(2028, 2, 28, 5), at(2028, 2, 29, 1)) == [
        "p20280228", "p20280229", "p20280301", "p20280302",
    ]  # fmt: skip


def test_a_month_is_deleted_after_its_end_whatever_the_day_of_its_oldest_row() -> None:
    kept = KeptData("messages", (), lambda: 86_400.0, lambda: None, step=MONTHLY)
    for day in (1, 28, 29, 30, 31):
        assert kept.next_at(at(2026, 5, day, 12)) == at(2026, 6, 2)
    assert kept.next_at(at(2027, 1, 31)) == at(2027, 2, 2)


def test_a_start_in_the_future_is_now() -> None:
    assert names(DAILY, at(2030, 1, 1), at(2028, 2, 28))[0] == "p20280228"
