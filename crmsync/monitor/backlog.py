"""The backlog of each policy: the numbers of waiting and dead records, and the oldest of them.

Counts stop at COUNTED: dead records pile up until a person looks at them, and a count must not
take longer each day.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import product
from typing import NamedTuple

from django.db.models import F, OuterRef, Subquery

from crmsync.models import Crm, Policy, Record, RecoveryEntry
from crmsync.monitor.counters import CONFIRMED, FLOW
from msgplatform.core.data.counting import capped
from msgplatform.models import MinuteCounter

COUNTED = 100_000
_State = Record.State
# Confirmed and dismissed records are never counted: they need no work, and their number grows.
NOT_CONFIRMED = (*Record.OPEN, _State.DEAD)
# How far back the last confirmed record is looked for. Without this bound, all counters of a policy
# that confirms nothing would be read.
LOOKED_BACK = timedelta(days=1)


class PolicyProgress(NamedTuple):
    """A policy and the times that show whether it makes progress.

    `due_at` is the earliest time at which one of its records is due, None when none waits; those in
    flight do not count. `confirmed_at` is the minute of its last confirmed record, None when
    LOOKED_BACK has none. `moved_at` is the time when its watermark last moved, None for never.
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
    rows = Policy.objects.select_related("source", "crm")
    # These columns are not used here, and are large or have to be decrypted.
    unread_columns = ("mapping", "source__database", "crm__settings", "crm__credentials")
    confirmed_counters = MinuteCounter.objects.filter(
        flow=FLOW, subject=OuterRef("pk"), name=CONFIRMED, minute__gte=now - LOOKED_BACK
    ).order_by("-minute")
    policies_with_times = rows.defer(*unread_columns).annotate(
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
    policies: Iterable[int], states: Sequence[int] = NOT_CONFIRMED, limit: int = COUNTED
) -> Counter[tuple[int, int]]:
    """The number of records by (policy, state), each counted up to `limit`.

    One query for hundreds of pairs.
    """
    pairs = list(product(policies, map(int, states)))
    numbers = capped("sync_record", "policy_id = %s AND state = %s", pairs, limit)
    return Counter(dict(zip(pairs, numbers, strict=True)))


def open_entries(before: datetime, limit: int) -> int:
    """The number of open entries of the recovery log from before this time, counted up to `limit`.
    Entries of sandboxes are not counted."""
    sandboxes = list(Crm.objects.filter(adapter=Crm.SANDBOX).values_list("id", flat=True))
    rows = RecoveryEntry.objects.filter(state=RecoveryEntry.State.OPEN).order_by("id")
    # No index has `created_at`. Ids grow with time, so that the index (state, id) gives the oldest
    # entries first: compare the times of the first `limit` here.
    rows = rows.exclude(crm_id__in=sandboxes)
    return sum(at < before for at in rows.values_list("created_at", flat=True)[:limit])


def _first_due(state: int) -> Subquery:
    """The time when the first of a policy's records in this state is due.

    ORDER BY names the whole index: by `next_at` alone MySQL 8.4 and later sort the backlog.
    """
    records = Record.objects.filter(policy_id=OuterRef("pk"), state=state)
    in_order = records.order_by("policy_id", "state", "next_at")
    return Subquery(in_order.values("next_at")[:1])
