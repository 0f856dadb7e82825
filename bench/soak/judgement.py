"""Whether a platform stayed as it was: the last quarter of a run beside an earlier one.

Memory, descriptors, threads and connections are compared with the second quarter, since caches fill
in the first one; latencies with the first, without the windows in which a program was restarted.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

Sample = dict[str, Any]

# A figure may grow by so much of itself and so much besides.
TOLERANCES = {
    "pss_mb": (0.10, 4.0), "fds": (0.10, 4.0), "threads": (0.10, 2.0), "memory_mb": (0.10, 2.0),
    "keys": (0.10, 200.0), "clients": (0.10, 4.0), "connections": (0.10, 4.0),
    "mb": (0.25, 2.0), "p95_ms": (0.50, 30.0),
}  # fmt: skip
UNITS = {"pss_mb": "MB", "memory_mb": "MB", "mb": "MB", "p95_ms": "ms"}
# Tables that hold what is under way; an archive grows with the run, and is not judged.
HOT_TABLES = ("biz_msg", "receive_msg", "attempt")
_FEWEST = 3  # samples of a quarter, or there is no judgement


@dataclass(frozen=True)
class Finding:
    """A figure of the earlier quarter and of the last one, as medians."""

    subject: str
    column: str
    before: float
    after: float

    @property
    def is_flat(self) -> bool:
        share, more = TOLERANCES[self.column]
        return self.after <= self.before * (1 + share) + more

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "is_flat": self.is_flat}


def judge(samples: Sequence[Sample]) -> list[Finding]:
    """All findings; none for a run that is too short for quarters."""
    quarters = [_quarter(samples, number) for number in range(4)]
    if any(len(quarter) < _FEWEST for quarter in quarters):
        return []
    first, second, _third, last = quarters
    findings = list(_flatness(second, last))
    calm = [sample for sample in first if not sample["restarts"]] or first
    for place in sorted({place for sample in last for place in sample["latency"]}):
        before, after = (_p95(quarter, place) for quarter in (calm, last))
        if before is not None and after is not None:
            findings.append(Finding(place, "p95_ms", before, after))
    return findings


def _flatness(before: Sequence[Sample], after: Sequence[Sample]) -> Iterator[Finding]:
    # A program of the load keeps books, which grow with the run.
    for label in sorted(set(before[-1]["programs"]) - set(before[-1]["load"])):
        for column in ("pss_mb", "fds", "threads"):
            yield _finding(before, after, label, column, lambda s: s["programs"].get(label))  # noqa: B023
    for name in before[-1]["redis"]:
        for column in before[-1]["redis"][name]:
            yield _finding(before, after, f"{name} Redis", column, lambda s: s["redis"][name])  # noqa: B023
    yield _finding(before, after, "MariaDB", "connections", lambda s: s["mariadb"])
    for table in HOT_TABLES:
        yield _finding(before, after, table, "mb", lambda s: s["mariadb"]["tables"][table])  # noqa: B023


def _finding(
    before: Sequence[Sample], after: Sequence[Sample], subject: str, column: str,
    part: Callable[[Sample], Any],
) -> Finding:  # fmt: skip
    values = [
        statistics.median([float(row[column]) for s in some if (row := part(s))] or [0.0])
        for some in (before, after)
    ]
    return Finding(subject, column, *(round(value, 2) for value in values))


def _quarter(samples: Sequence[Sample], number: int) -> list[Sample]:
    end = samples[-1]["elapsed"] if samples else 0.0
    start, stop = end * number / 4, end * (number + 1) / 4
    return [s for s in samples if start < s["elapsed"] <= stop]


def _p95(samples: Sequence[Sample], place: str) -> float | None:
    times = [s["latency"].get(place, {}) for s in samples]
    values = [each["p95_ms"] for each in times if "p95_ms" in each]
    return statistics.median(values) if values else None
