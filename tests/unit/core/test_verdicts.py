"""Verdicts: what a caller is told of each item, and items that are judged one by one."""

import pytest

from msgplatform.core.errors import Conflict, InvalidInput
from msgplatform.core.intake.verdicts import Verdict, judge_each, limit_items


class Limit(InvalidInput):
    code = "limit"


def read(item: str) -> int:
    if not item.isdigit():
        raise InvalidInput(f"{item!r} is no number", "n")
    return int(item)


def created(items: list[int]) -> list[Verdict]:
    return [Verdict("created", item) for item in items]


def test_a_wrong_item_does_not_refuse_its_neighbours() -> None:
    verdicts = judge_each(["x", "1", "y", "2"], read, created)
    assert [(v.outcome, v.id, v.field) for v in verdicts] == [
        ("rejected", 0, "n"), ("created", 1, ""), ("rejected", 0, "n"), ("created", 2, ""),
    ]  # fmt: skip


def test_nothing_is_accepted_when_nothing_can_be_read() -> None:
    def never(items: list[int]) -> list[Verdict]:
        raise AssertionError(items)

    assert [v.outcome for v in judge_each(["x", "y"], read, never)] == ["rejected"] * 2
    assert judge_each([], read, never) == []


def test_what_accepting_raises_is_raised() -> None:
    def fail(items: list[int]) -> list[Verdict]:
        raise OSError("away")

    with pytest.raises(OSError, match="away"):
        judge_each(["x", "1"], read, fail)


@pytest.mark.parametrize(
    ("verdict", "shown"),
    [
        (Verdict("created", 2**62), {"outcome": "created", "id": str(2**62)}),
        (Verdict.duplicate_or_conflict(True, 7), {"outcome": "duplicate", "id": "7"}),
        (
            Verdict.duplicate_or_conflict(True, ids=["7", "8"]),
            {"outcome": "duplicate", "ids": ["7", "8"]},
        ),
        (
            Verdict.rejected(InvalidInput("too long", "text")),
            {"outcome": "rejected", "code": "invalid", "field": "text", "detail": "too long"},
        ),
        (
            Verdict.rejected(Limit("not today", "account")),
            {"outcome": "rejected", "code": "limit", "field": "account", "detail": "not today"},
        ),
    ],
)
def test_what_a_caller_reads(verdict: Verdict, shown: dict) -> None:
    assert verdict.as_dict() == shown


def test_another_payload_under_the_same_key() -> None:
    shown = Verdict.duplicate_or_conflict(False, 7).as_dict()
    assert (shown["code"], shown["field"]) == ("conflict", "idempotency_key")
    assert "id" not in shown


def test_the_verdict_of_a_single_item_as_an_error() -> None:
    Verdict("created", 1).raise_rejected()
    with pytest.raises(Conflict, match="new key"):
        Verdict.duplicate_or_conflict(False).raise_rejected()
    with pytest.raises(InvalidInput, match="not today") as caught:
        Verdict.rejected(Limit("not today", "account")).raise_rejected()
    assert caught.value.field == "account"


@pytest.mark.parametrize("count", [0, 4])
def test_too_few_and_too_many(count: int) -> None:
    limit_items([1, 2, 3], 3, "posts")
    with pytest.raises(InvalidInput, match="1 to 3 posts") as caught:
        limit_items([1] * count, 3, "posts")
    assert caught.value.field == "posts"
