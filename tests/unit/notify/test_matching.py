"""Patterns of event types."""

import time

import pytest

from notify.subscriptions.matching import PATTERN, compile_filter


@pytest.mark.parametrize(
    ("patterns", "event_type", "wanted"),
    [
        ([], "order.paid", True),
        (["order.paid"], "order.paid", True),
        (["order.paid"], "order.paid2", False),
        (["order.*"], "order.paid", True),
        (["order.*"], "order.paid.late", True),
        (["order.*"], "orders.paid", False),
        (["*.paid"], "order.paid", True),
        (["*"], "anything", True),
        (["order"], "order.paid", False),
        (["o.der"], "order", False),
        (["a", "b*"], "bc", True),
    ],
)
def test_wants(patterns: list[str], event_type: str, wanted: bool) -> None:
    assert compile_filter(patterns, []).matches(event_type, "") is wanted


def test_channels_are_exact() -> None:
    rule = compile_filter([], ["eu"])
    assert rule.matches("a", "eu")
    assert not rule.matches("a", "")
    assert not rule.matches("a", "EU")


def test_many_stars_cost_no_more_than_one() -> None:
    """A backtracking expression would take years for this one."""
    pattern = "*a" * 40 + "*b"
    assert PATTERN.fullmatch(pattern)
    begun = time.monotonic()
    assert not compile_filter([pattern], []).matches("a" * 128, "")
    assert time.monotonic() - begun < 60
