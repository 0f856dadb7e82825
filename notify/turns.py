"""Turns between business systems: whoever has much work does not delay another's little."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import TypeVar

T = TypeVar("T")


def in_turns(
    items: Iterable[T], system: Callable[[T], int], cost: Callable[[T], int] = lambda _item: 1
) -> list[T]:
    """The items so that each system has had about the same cost at any point of the list.

    Items of one system keep their order, and a system whose first item comes first is the first.
    """
    spent: dict[int, int] = defaultdict(int)
    ranked: list[tuple[int, T]] = []
    for item in items:
        owner = system(item)
        ranked.append((spent[owner], item))
        spent[owner] += max(1, cost(item))
    ranked.sort(key=itemgetter(0))  # stable
    return [item for _rank, item in ranked]
