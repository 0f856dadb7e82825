"""What a bulk action would change: counted, grouped and sampled, page by page as a job reads it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

from msgplatform.core.bulk.cursor import COUNT_MOST, COUNT_PAGE, BulkCursor, Page
from msgplatform.core.flows import Counted, Hit, Preview, PreviewGroup

_SECONDS = 2.0  # a person waits for it
SAMPLE = 5
SHOWN_GROUPS = 20

K = TypeVar("K", bound=Hashable)
# What a page's rows are about: (id, group, time) for each.
Described = Iterable[tuple[Any, K, datetime]]


@dataclass
class Tally(Generic[K]):
    """What was counted. `sample` holds ids, of different groups as far as there are."""

    counted: Counted = field(default_factory=lambda: Counted(0))
    groups: Counter[K] = field(default_factory=Counter)
    oldest: datetime | None = None
    newest: datetime | None = None
    sample: list[Any] = field(default_factory=list)

    def preview(
        self,
        begun: datetime,
        titles: Mapping[K, str],
        sample: Sequence[Hit],
        pace: float | None = None,
    ) -> Preview:
        """For the contract; `begun` is the bound with which its pages were read."""
        groups = [PreviewGroup(titles[key], n) for key, n in self.groups.most_common(SHOWN_GROUPS)]
        return Preview(
            self.counted, groups, self.oldest, self.newest, sample, pace,
            BulkCursor(begun).start(),
        )  # fmt: skip


def tally(
    page: Callable[[str, int], Page],
    describe: Callable[[Sequence[Any]], Described[K]],
) -> Tally[K]:
    """Read pages up to COUNT_MOST ids, for about _SECONDS."""
    result: Tally[K] = Tally()
    first_of: dict[K, Any] = {}
    first: list[Any] = []
    count, position, more = 0, "", False
    until = time.monotonic() + _SECONDS
    while True:
        read = page(position, COUNT_PAGE)
        for row_id, group, at in describe(read.ids) if read.ids else ():
            result.groups[group] += 1
            first_of.setdefault(group, row_id)
            if len(first) < SAMPLE:
                first.append(row_id)
            result.oldest = at if result.oldest is None else min(result.oldest, at)
            result.newest = at if result.newest is None else max(result.newest, at)
        count += len(read.ids)
        position = read.position
        if not position:
            break
        if count >= COUNT_MOST or time.monotonic() >= until:
            more = True
            break
    result.counted = Counted(count, more)
    result.sample = list(dict.fromkeys([*list(first_of.values())[:SAMPLE], *first]))[:SAMPLE]
    return result
