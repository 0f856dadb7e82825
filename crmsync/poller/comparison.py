"""The version sweep: compare every row's version with what was read of it, and read those that are
behind.

It looks at every row, in pages by key, and asks no clock: so it finds what no watermark can, such
as rows that were committed after a horizon that was only assumed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from crmsync import models
from crmsync.directory import Crm, Policy
from crmsync.models import Record, Run
from crmsync.poller import requests, runs
from crmsync.poller.distribution import DistributionCenter
from crmsync.poller.reading.database import Database
from crmsync.poller.reading.increment import Increment, Key
from crmsync.poller.reading.source import Source, SourceMismatch
from crmsync.poller.store import Round, store
from msgplatform.core import logging
from msgplatform.core.data import ids, sql

log = logging.get(__name__)

# A run's place is written down so often: the successor of a killed poller repeats no more pages.
_PAGES_A_NOTE = 50
_Kind = models.Policy.Kind
Sent = Callable[[Sequence[Key]], Mapping[Key, int]]


class Comparison:
    """One comparison after the other, each from the smallest key on; `run` is 0 between them."""

    def __init__(self, policy: Policy, holder: str, center: DistributionCenter) -> None:
        self._holder, self._center = holder, center
        # An earlier holder of the policy may have left one half-way.
        left = next((r for r in runs.unfinished(policy.id) if r.kind == _Kind.SWEEP), None)
        self.run = left.pk if left else 0
        self._after: Key | None = left.after if left else None
        self._pages = 0

    def begin(self, policy: Policy, requested: bool) -> None:
        run = runs.begin(policy, _Kind.SWEEP, 0, requested)
        if run:
            self.run, self._after = run, None
            now = sql.now()
            models.Policy.objects.filter(pk=policy.id).update(swept_at=now)

    def round(
        self, policy: Policy, crm: Crm, source: Source, increment: Increment, limit: int
    ) -> None:
        """Compare the next rows, and queue up to `limit` that are behind. Raises as
        `Changes.round`."""

        def known(keys: Sequence[Key]) -> Mapping[Key, int]:
            rows = Record.objects.filter(policy_id=policy.id, key__in=[str(key) for key in keys])
            versions = dict(rows.order_by().values_list("key", "version"))
            return {key: versions[str(key)] for key in keys if str(key) in versions}

        swept = sweep(source, known, self._after, limit)
        if swept.behind:
            self._send(policy, crm, increment, swept.behind)
        self._after = swept.after
        self._pages += 1
        if swept.after is None:
            runs.finish(self.run)
            self.run = 0
        elif swept.behind or self._pages % _PAGES_A_NOTE == 0:
            Run.objects.filter(pk=self.run).update(after=swept.after)

    def fail(self, problem: str) -> None:
        runs.finish(self.run, problem)
        self.run = 0

    def _send(self, policy: Policy, crm: Crm, increment: Increment, keys: Sequence[Key]) -> None:
        operation = ids.new(ids.bucket(policy.id, None))
        wanted = requests.wanted(policy, increment.rows(keys), operation)
        if requests.is_too_large(wanted):
            half = len(keys) // 2
            self._send(policy, crm, increment, keys[:half])
            self._send(policy, crm, increment, keys[half:])
            return
        # No watermark: these rows lie anywhere in the order by time.
        this = Round(policy, self._holder, crm.id, operation, self.run, wanted, None)
        stored = store(this)
        if stored.operation:
            log.warning("rows_were_behind", policy=policy.name, count=len(stored.requests))
            self._center.distribute(crm, this, stored)


@dataclass(frozen=True, slots=True)
class Swept:
    """The keys of a page whose rows must be sent, and where to go on (None at the end)."""

    behind: Sequence[Key]
    after: Key | None


def sweep(source: Source, sent: Sent, after: Key | None = None, limit: int = 1_000) -> Swept:
    """Compare up to `limit` rows after the key `after` with the versions that were sent.

    `sent(keys)` gives the version that was sent for each of those keys; keys that were never sent
    are left out. Softly deleted rows count like any other. Raises SourceMismatch when the source
    has no version column, and what reading it raises.
    """
    if not source.columns.version:
        raise SourceMismatch("the source has no version column to compare")
    database = Database(source)
    key, version = database.quote(source.columns.key), database.quote(source.columns.version)
    condition, parameters = ("", []) if after is None else (f"WHERE {key} > %s", [after])
    rows = database.rows(
        f"SELECT {key}, {version} FROM {database.quote(source.table)} {condition} "  # noqa: S608
        f"ORDER BY {key} LIMIT {limit:d}",
        parameters,
    )
    known = sent([row[0] for row in rows])
    behind = [key for key, version in rows if key not in known or (version or 0) > known[key]]
    return Swept(behind, rows[-1][0] if len(rows) == limit else None)
