"""Turns between business systems."""

from notify.orders import in_turns


def test_the_first_of_each_system_then_the_second() -> None:
    items = ["a1", "a2", "a3", "b1", "c1", "b2"]
    assert in_turns(items, lambda item: ord(item[0])) == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_by_what_each_item_costs() -> None:
    """Two messages for a hundred subscriptions each, and four for one."""
    items = [("a", 100), ("a", 100), ("b", 1), ("b", 1), ("b", 1), ("b", 1)]
    ordered = in_turns(items, lambda item: ord(item[0]), lambda item: item[1])
    assert [system for system, _cost in ordered] == ["a", "b", "b", "b", "b", "a"]


def test_what_costs_nothing_takes_turns_too() -> None:
    items = [("a", 0), ("a", 0), ("b", 0)]
    ordered = in_turns(items, lambda item: ord(item[0]), lambda item: item[1])
    assert [system for system, _cost in ordered] == ["a", "b", "a"]
