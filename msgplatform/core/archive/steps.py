"""What one partition holds: the ids of a month, or of a day."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class Step:
    """`pattern` (strftime) makes a partition's name from the moment it begins at; `days` is its
    greatest length; `ahead` partitions are made before they are needed."""

    pattern: str
    days: int
    ahead: int

    def start(self, moment: datetime) -> datetime:
        """When the step that holds this moment began (UTC)."""
        day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
        return day if self.days == 1 else day.replace(day=1)

    def end(self, start: datetime) -> datetime:
        """When the next one begins."""
        return self.start(start + timedelta(days=self.days))

    def name(self, start: datetime) -> str:
        return start.strftime(self.pattern)

    def until_ahead(self, start: datetime, now: datetime) -> Iterator[datetime]:
        """The steps from `start`, or now, to those that are made ahead."""
        step, last = self.start(min(start, now)), self.start(now)
        for _ in range(self.ahead):
            last = self.end(last)
        while step <= last:
            yield step
            step = self.end(step)


MONTH = Step("p%Y%m", days=31, ahead=2)
DAY = Step("p%Y%m%d", days=1, ahead=2)
