"""How far a run is: what was read, what the CRM holds of it, how fast, and how long it takes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from crmsync.models import Operation, Run
from crmsync.models.sources import MAX_UNREAD
from msgplatform.core.data import sql

# Operations that one answer adds up, those of the newest runs first: ten million records.
MAX_OPERATIONS = 20_000


@dataclass(frozen=True, slots=True)
class Progress:
    """Counts are records; `sent` are those in the run's operations, and every other one is either
    `confirmed`, `replaced` by a newer version, `dead` or `waiting`.

    `rate` is how many records a second were done since the run began, None once it is over.
    `left` is seconds until it is over at this rate, None when that is not known. `partly`: the run
    has more operations than are added up, and the counts but `read` and `unchanged` are too low.
    """

    read: int
    unchanged: int
    sent: int
    confirmed: int
    replaced: int
    dead: int
    rate: float | None
    left: float | None
    is_over: bool
    partly: bool = False

    @property
    def waiting(self) -> int:
        return max(0, self.sent - self.confirmed - self.replaced - self.dead)


def of_runs(runs: Iterable[Run]) -> dict[int, Progress]:
    """The progress by run id; two queries for any number of runs."""
    by_id = {run.pk: run for run in runs}
    rows = Operation.objects.filter(run_id__in=list(by_id)).order_by("-run_id", "-id")
    columns = rows.values_list("run_id", "records", "confirmed", "replaced", "dead")
    sums: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    added = list(columns[: MAX_OPERATIONS + 1])
    cut = added[MAX_OPERATIONS][0] if len(added) > MAX_OPERATIONS else 0
    for run_id, *counts in added:
        sums[run_id] = [a + b for a, b in zip(sums[run_id], counts, strict=True)]
    now = sql.now().timestamp()
    return {
        pk: _progress(run, sums[pk], now - run.started_at.timestamp(), pk <= cut)
        for pk, run in by_id.items()
    }


def _progress(run: Run, counts: list[int], elapsed: float, partly: bool) -> Progress:
    sent, confirmed, replaced, dead = counts
    ended = confirmed + replaced + dead
    is_over = run.state != Run.State.READING and sent <= ended
    done = run.unchanged + ended
    rate = None if is_over else done / max(elapsed, 1.0)
    # A run that has read more than it counted at its beginning reads rows that came since, and
    # nobody knows how many those are.
    is_known = run.state != Run.State.READING or run.read < run.unread < MAX_UNREAD
    total = run.unchanged + sent if run.state != Run.State.READING else run.unread
    left = max(0, total - done) / rate if rate and is_known and not partly else None
    return Progress(
        run.read, run.unchanged, sent, confirmed, replaced, dead, rate, left, is_over, partly
    )
