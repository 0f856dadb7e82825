"""The backlog of each policy, and the progress of a run.

Counts stop at MAX_COUNT: dead records pile up until a person looks at them, and a count must not
take longer each day."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import product
from typing import NamedTuple

import msgspec
from django.db.models import F, OuterRef, Subquery

from crmsync.models import Crm, Operation, Policy, Record, RecoveryEntry, Run
from crmsync.models.sources import MAX_UNREAD
from crmsync.monitor.counters import CONFIRMED, FLOW
from msgplatform.core.data import sql
from msgplatform.core.data.counting import count_up_to
from msgplatform.models import MinuteCounter

MAX_COUNT = 100_000
_State = Record.State
# Confirmed and dismissed records are never counted: they need no work, and their number grows.
NOT_CONFIRMED = (*Record.OPEN, _State.DEAD)
# How far back the last confirmed record is looked for. Without this bound, all counters of a policy
# that confirms nothing would be read.
LOOK_BACK = timedelta(days=1)


class PolicyProgress(NamedTuple):
    """A policy and the times that show whether it makes progress.

    `due_at` is the earliest time at which one of its records is due, None when none waits; those in
    flight do not count. `confirmed_at` is the minute of its last confirmed record, None when
    LOOK_BACK has none. `moved_at` is the time when its watermark last moved, None for never.
    """

    policy: Policy
    due_at: datetime | None
    confirmed_at: datetime | None
    moved_at: datetime | None

    @property
    def labels(self) -> Mapping[str, str]:
        return {"crm": self.policy.crm.name, "source": self.policy.source.name}

    @property
    def takes_work(self) -> bool:
        crm = self.policy.crm
        return self.policy.enabled and crm.enabled and crm.paused_at is None


def of_policies(now: datetime) -> list[PolicyProgress]:
    """The progress of every policy; one query."""
    confirmed_counters = MinuteCounter.objects.filter(
        flow=FLOW, subject=OuterRef("pk"), name=CONFIRMED, minute__gte=now - LOOK_BACK
    ).order_by("-minute")
    policies_with_times = Policy.with_names().annotate(
        waiting_at=_first_due(_State.WAITING),
        retry_at=_first_due(_State.RETRY),
        moved_at=F("watermark__moved_at"),
        confirmed_at=Subquery(confirmed_counters.values("minute")[:1]),
    )
    policies = []
    for row in policies_with_times.order_by("id"):
        due = min(filter(None, (row.waiting_at, row.retry_at)), default=None)
        policies.append(PolicyProgress(row, due, row.confirmed_at, row.moved_at))
    return policies


def counts(
    policies: Iterable[int], states: Sequence[int] = NOT_CONFIRMED, limit: int = MAX_COUNT
) -> Counter[tuple[int, int]]:
    """The number of records by (policy, state), each counted up to `limit`.

    One query for hundreds of pairs.
    """
    pairs = list(product(policies, map(int, states)))
    numbers = count_up_to("sync_record", "policy_id = %s AND state = %s", pairs, limit)
    return Counter(dict(zip(pairs, numbers, strict=True)))


def count_open_entries(before: datetime, limit: int) -> int:
    """The number of open entries of the recovery log from before this time, counted up to `limit`.
    Entries of sandboxes are not counted."""
    sandboxes = list(Crm.objects.filter(adapter=Crm.SANDBOX).values_list("id", flat=True))
    # No index has `created_at`. Ids grow with time, so that the index (state, id) gives the oldest
    # entries first: compare the times of the first `limit` here.
    rows = RecoveryEntry.open_entries().exclude(crm_id__in=sandboxes).order_by("id")
    return sum(at < before for at in rows.values_list("created_at", flat=True)[:limit])


def _first_due(state: int) -> Subquery:
    """The time when the first of a policy's records in this state is due.

    ORDER BY names the whole index: by `next_at` alone MySQL 8.4 and later sort the backlog.
    """
    records = Record.objects.filter(policy_id=OuterRef("pk"), state=state)
    in_order = records.order_by("policy_id", "state", "next_at")
    return Subquery(in_order.values("next_at")[:1])


# Maximum of operations that one answer adds up, newest runs first: ten million records.
MAX_OPERATIONS = 20_000


class Progress(msgspec.Struct, frozen=True):
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
    for run_id, *operation_counts in operations:
        sums[run_id] = [a + b for a, b in zip(sums[run_id], operation_counts, strict=True)]
    now = sql.now().timestamp()
    progress_by_run: dict[int, Progress] = {}
    for run in by_id.values():
        sent_count, confirmed_count, replaced_count, dead_count = sums[run.pk]
        ended_count = confirmed_count + replaced_count + dead_count
        done_count = run.unchanged + ended_count
        is_reading, is_partial = run.state == Run.State.READING, run.pk <= last_full_run
        is_over = not is_reading and sent_count <= ended_count
        rate = None if is_over else done_count / max(now - run.started_at.timestamp(), 1.0)
        # A run that has read more rows than were counted at its beginning reads newer rows, whose
        # number is not known.
        is_known = not is_partial and (not is_reading or run.read < run.unread < MAX_UNREAD)
        total = run.unread if is_reading else run.unchanged + sent_count
        remaining_seconds = max(0, total - done_count) / rate if rate and is_known else None
        progress_by_run[run.pk] = Progress(
            run.read, run.unchanged, sent_count, confirmed_count, replaced_count, dead_count,
            rate, remaining_seconds, is_over, is_partial,
        )  # fmt: skip
    return progress_by_run
