"""Databases: SQL that they spell differently, ids, claims with a lease."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The items in their order, at most `size` at a time; none for an empty sequence. For
    statements and requests of a bounded size."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def chunks_within(items: Iterable[T], *bounds: tuple[Callable[[T], int], int]) -> Iterator[list[T]]:
    """The items in their order. A bound is a measure of an item, and the most that the items of a
    chunk may have of it; an item that has more is a chunk by itself."""
    chunk: list[T] = []
    totals = [0] * len(bounds)
    for item in items:
        sizes = [measure(item) for measure, _maximum in bounds]
        totals = [total + size for total, size in zip(totals, sizes, strict=True)]
        if chunk and any(total > pair[1] for total, pair in zip(totals, bounds, strict=True)):
            yield chunk
            chunk, totals = [], sizes
        chunk.append(item)
    if chunk:
        yield chunk
