"""Databases: SQL that they spell differently, ids, claims with a lease."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The items in their order, at most `size` at a time; none for an empty sequence. For
    statements and requests of a bounded size."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
