"""The progress of a run: rows read, records at the CRM, speed, and the time that is left."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from crmsync.models import Operation, Run
from crmsync.models.sources import MAX_UNREAD
from msgplatform.core.data import sql

# Maximum of operations that one answer adds up, newest runs first: ten million records.
MAX_OPERATIONS = 20_000


@dataclass(frozen=True, slots=True)
class Progress:
    """Counts are records; `sent` are those in the run's operations, and every other one is either
    `confirmed`, `replaced` by a newer version, `dead` or `waiting`.

    `rate` is the records that were done in a second since the run began, None once it is over.
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
    operations = list(columns[: MAX_OPERATIONS + 1])
    last_full_run = operations[MAX_OPERATIONS][0] if len(operations) > MAX_OPERATIONS else 0
    for run_id, *counts in operations:
        sums[run_id] = [a + b for a, b in zip(sums[run_id], counts, strict=True)]
    now = sql.now().timestamp()
    progress_by_run: dict[int, Progress] = {}
    for run in by_id.values():
        sent_count, confirmed_count, replaced_count, dead_count = sums[run.pk]
        is_partial = run.pk <= last_full_run
        ended_count = confirmed_count + replaced_count + dead_count
        is_over = run.state != Run.State.READING and sent_count <= ended_count
        records_done = run.unchanged + ended_count
        rate = None if is_over else records_done / max(now - run.started_at.timestamp(), 1.0)
        # A run that has read more rows than were counted at its beginning reads newer rows, whose
        # number is not known.
        is_known = run.state != Run.State.READING or run.read < run.unread < MAX_UNREAD
        total = run.unchanged + sent_count if run.state != Run.State.READING else run.unread
        seconds_left = (
            max(0, total - records_done) / rate if rate and is_known and not is_partial else None
        )
        progress_by_run[run.pk] = Progress(
            run.read,
            run.unchanged,
            sent_count,
            confirmed_count,
            replaced_count,
            dead_count,
            rate,
            seconds_left,
            is_over,
            is_partial,
        )
    return progress_by_run
