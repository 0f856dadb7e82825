"""Runs that read changed rows, and runs that compare versions (sweeps), round by round.

    reading ──> read       no further row lies below the horizon
       └──────> failed     the source has no versions to compare

A run begins with the first rows that are read: a look without rows leaves no run.
"""

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from crmsync import models
from crmsync.directory import Crm
from crmsync.models import Policy, Record, Run
from crmsync.models.operations import MAX_MESSAGE
from crmsync.models.sources import MAX_RUN, MAX_UNREAD
from crmsync.policies import schedule
from crmsync.poller import requests
from crmsync.poller.decisions import Round
from crmsync.poller.distribution import DistributionCenter
from crmsync.poller.reading.database import Database
from crmsync.poller.reading.increment import Facts, Increment, Key, Watermark
from crmsync.poller.reading.source import Source, SourceMismatch
from crmsync.poller.store import Unstorable, require_lease, store, store_or_set_aside
from msgplatform.core import logging
from msgplatform.core.data import ids, sql, transactions
from msgplatform.core.errors import LeaseLost

log = logging.get(__name__)

_Kind = Policy.Kind
# While no row is behind, a comparison's place is stored after so many pages: the successor of a
# killed poller repeats at most these.
_PAGES_UNSTORED = 50
# Maximum of older runs that a new holder of a policy looks through for one that has not ended.
_MAX_OLDER_RUNS = 2_000


class _Runs:
    """The runs of one policy of these kinds. `run` is the id of the present run, 0 without one;
    `is_requested`: a person asked for it."""

    def __init__(
        self, policy: Policy, holder: str, center: DistributionCenter, kinds: Collection[str]
    ) -> None:
        self._holder, self._center = holder, center
        self.run, self.is_requested = 0, False
        self._after: Key | None = None  # of a comparison
        since = ids.first_id_at(sql.now() - MAX_RUN)
        rows = Run.objects.filter(policy_id=policy.id, id__gte=since, kind__in=kinds)
        runs = rows.filter(state=Run.State.READING).order_by("-id")
        # Continue the newest run that an earlier holder of the policy left unfinished. No poller
        # would continue older ones.
        for row in runs:
            if self.run:
                _finish(row.pk)
            else:
                self.run, self._after = row.pk, row.after
                self.is_requested = bool(row.requested_by)
        # Runs from before `since` are not continued either. No index has their state.
        older_runs = sql.of_one(Run.objects.filter(id__lt=since), "policy_id", policy.id)
        columns = older_runs.order_by("-policy_id", "-id").values_list("id", "kind", "state")
        for run_id, kind, state in columns[:_MAX_OLDER_RUNS]:
            if state == Run.State.READING and kind in kinds:
                _finish(run_id)

    def may_go_on(self, policy: Policy, now: datetime) -> bool:
        """True if a run has begun and may go on now. A requested run may go on at any hour."""
        return self.run > 0 and (self.is_requested or schedule.is_open(policy.hours, now))

    def end(self, problem: str = "") -> None:
        """End the present run, if there is one; with a `problem` it has failed."""
        if self.run:
            _finish(self.run, problem)
            self.run = 0

    def _begin(self, policy: Policy, kind: str, unread: int, is_requested: bool = False) -> None:
        """Begin a run in place of the present one, in one transaction. With `is_requested` it also
        takes the request, so that this makes one run only. A run of everything forgets how far the
        source was read.

        Raises LeaseLost when another poller holds the policy, or when the request was taken or
        replaced meanwhile.
        """
        run_id = ids.new(ids.bucket(policy.id, None))

        @transactions.repeatable
        def begin_once() -> None:
            # If the connection broke after the commit, the run is stored already.
            if Run.objects.filter(pk=run_id).exists():
                return
            now = require_lease(policy, self._holder)
            if is_requested:
                rows = Policy.objects.filter(pk=policy.id, requested=kind)
                if not rows.update(requested="", requested_by=""):
                    raise LeaseLost(f"the run of the policy {policy} was begun already")
            if self.run:
                _finish(self.run)
            if kind == _Kind.FULL:
                models.Watermark.objects.filter(policy_id=policy.id).delete()
            Run.objects.create(
                id=run_id, policy_id=policy.id, kind=kind, started_at=now, unread=unread,
                requested_by=policy.requested_by if is_requested else "",
            )  # fmt: skip

        begin_once()
        self.run, self.is_requested = run_id, is_requested


def _finish(run_id: int, problem: str = "") -> None:
    state = Run.State.FAILED if problem else Run.State.READ
    rows = Run.objects.filter(pk=run_id, state=Run.State.READING)
    transactions.retrying(
        lambda: rows.update(state=state, read_at=sql.now(), problem=problem[:MAX_MESSAGE])
    )


class Changes(_Runs):
    """The changes of one source for one CRM."""

    def __init__(self, policy: Policy, holder: str, center: DistributionCenter) -> None:
        super().__init__(policy, holder, center, (_Kind.CHANGES, _Kind.FULL))
        self._watermark = stored_watermark(policy.id)
        self._are_new = self._watermark is None  # the next rows are probably new
        self.facts: Facts | None = None

    def request(self, policy: Policy, increment: Increment) -> None:
        """Begin the requested run. It ends the present run, and reads the rest of it. Raises
        LeaseLost when it was begun already."""
        is_full = policy.requested == _Kind.FULL
        unread = increment.count_after(None if is_full else self._watermark, MAX_UNREAD)
        self._begin(policy, policy.requested, unread, is_requested=True)
        if is_full:
            increment.restart()
        self._watermark = stored_watermark(policy.id)

    def round(self, policy: Policy, crm: Crm, increment: Increment, limit: int) -> bool:
        """Read and queue up to `limit` rows. Returns True if there are more.

        Raises what reading the source raises, LeaseLost, and RedisError after everything is stored.
        """
        page = increment.read(self._watermark, limit)
        self.facts = page.facts
        if self._watermark and page.facts.clock_back:
            # Move the watermark back, because the source's clock went back: newer rows lie behind
            # it.
            self._watermark = increment.before(self._watermark, page.facts.clock_back)
            # No check of the lease: rows are only read again, and none is lost.
            rows = models.Watermark.objects.filter(policy_id=policy.id)
            transactions.retrying(partial(rows.update, update_time=self._watermark.time))
            increment.forget_step_back()
            page = increment.read(self._watermark, limit)
        if not page.rows:
            # Move the watermark behind rows that were read early: otherwise each look would read
            # them again.
            if page.watermark != self._watermark:
                store(Round(policy, self._holder, crm.id, 0, 0, [], page.watermark))
                increment.confirm(page)
                self._watermark = page.watermark
            self.end()
            return False
        if not self.run:
            unread = increment.count_after(self._watermark, MAX_UNREAD) if page.more else 0
            unread = max(unread, len(page.rows))
            self._begin(policy, _Kind.CHANGES, unread)
        # The id comes before the transaction, which may be repeated.
        operation = ids.new(ids.bucket(policy.id, None))
        is_part = False
        while True:
            row_requests = requests.make_requests(policy, page.rows, operation)
            poll_round = Round(
                policy, self._holder, crm.id, operation, self.run, row_requests, page.watermark,
                self._are_new,
            )  # fmt: skip
            with contextlib.suppress(Unstorable):
                if not requests.is_too_large(row_requests):
                    result = store_or_set_aside(poll_round, is_part)
                    break
            is_part = True
            page = increment.read(self._watermark, max(1, len(page.rows) // 2))
        # Confirm only now: if the transaction had failed, the same rows would have to come again.
        increment.confirm(page)
        self._are_new = result.are_new
        self._watermark = page.watermark
        if not page.more:
            self.end()
        if result.operations:
            self._center.distribute(crm, poll_round, result)
        return page.more


def stored_watermark(policy_id: int) -> Watermark | None:
    """The place up to which a policy's source was read; None if it was not read yet."""
    row = models.Watermark.objects.filter(policy_id=policy_id).first()
    return Watermark(row.update_time, row.key) if row else None


class Comparison(_Runs):
    """The comparisons of one policy, round by round."""

    def __init__(self, policy: Policy, holder: str, center: DistributionCenter) -> None:
        super().__init__(policy, holder, center, (_Kind.SWEEP,))
        self._pages = 0

    def begin(self, policy: Policy, is_requested: bool) -> None:
        """Begin a run. Raises LeaseLost when the requested one was begun already."""
        self._begin(policy, _Kind.SWEEP, 0, is_requested)
        self._after = None
        Policy.objects.filter(pk=policy.id).update(swept_at=sql.now())

    def round(
        self, policy: Policy, crm: Crm, source: Source, increment: Increment, limit: int
    ) -> None:
        """Compare the next `limit` rows, and queue those that are behind.

        Raises what `sweep` and `Changes.round` raise.
        """

        def versions_read(keys: Sequence[Key]) -> Mapping[Key, int]:
            rows = Record.objects.filter(policy_id=policy.id, key__in=[str(key) for key in keys])
            versions = dict(rows.order_by().values_list("key", "version"))
            return {key: versions[str(key)] for key in keys if str(key) in versions}

        page = sweep(source, versions_read, self._after, limit, policy)
        if page.keys_behind:
            self._send(policy, crm, increment, page.keys_behind)
        self._after = page.after
        self._pages += 1
        if page.after is None:
            self.end()
        elif page.keys_behind or self._pages % _PAGES_UNSTORED == 0:
            Run.objects.filter(pk=self.run).update(after=page.after)

    def _send(
        self, policy: Policy, crm: Crm, increment: Increment, keys: Sequence[Key],
        is_part: bool = False,
    ) -> None:  # fmt: skip
        """Read these rows and queue them, as one operation, or several when that is too large."""
        operation = ids.new(ids.bucket(policy.id, None))
        row_requests = requests.make_requests(policy, increment.rows(keys), operation)
        # No watermark: these rows lie anywhere in the order of time, so that it must not move.
        poll_round = Round(policy, self._holder, crm.id, operation, self.run, row_requests, None)
        try:
            if requests.is_too_large(row_requests):
                raise Unstorable
            result = store_or_set_aside(poll_round, is_part)
        except Unstorable:
            half = len(keys) // 2
            self._send(policy, crm, increment, keys[:half], True)
            self._send(policy, crm, increment, keys[half:], True)
            return
        # No operation if the policy carries none of these rows: they are behind in each run.
        if result.operations:
            count = sum(operation.records for operation in result.operations)
            log.warning("rows_were_behind", policy=str(policy), count=count)
            self._center.distribute(crm, poll_round, result)


class SweepPage(msgspec.Struct, frozen=True):
    """A page: the keys of rows that are behind, and its last key (None at the end)."""

    keys_behind: Sequence[Key]
    after: Key | None


def sweep(
    source: Source,
    versions_read: Callable[[Sequence[Key]], Mapping[Key, int]],
    after: Key | None = None,
    limit: int = 1_000,
    policy: Policy | None = None,
) -> SweepPage:
    """Compare up to `limit` rows after the key `after` with the versions that were read of them.

    `versions_read(keys)` gives the newest version that was read of each of these rows, and leaves
    out the rows that were never read: they are behind, unless the `policy` does not carry them.
    Softly deleted rows count like any other.

    Raises SourceMismatch when the source has no version column, and what reading it raises.
    """
    if not source.columns.version:
        raise SourceMismatch("the source has no version column to compare")
    names = policy.choosing_columns if policy else []
    database = Database(source)
    key = database.quote(source.columns.key)
    # `+ 0` makes every version a number: bits come as bytes, and SQLite keeps any text.
    version = f"{database.quote(source.columns.version)} + 0"
    columns = ", ".join([key, version, *map(database.quote, names)])
    condition, parameters = ("", []) if after is None else (f"WHERE {key} > %s", [after])
    rows = database.rows(
        f"SELECT {columns} FROM {database.quote(source.table)} {condition} "  # noqa: S608
        f"ORDER BY {key} LIMIT {limit:d}",
        parameters,
    )
    versions = versions_read([row[0] for row in rows])

    def is_behind(key: Key, version: int | None, *values: Any) -> bool:
        if key in versions:  # also a row that the policy does not carry any more: it may be deleted
            return (version or 0) > versions[key]
        return not policy or policy.carries(dict(zip(names, values, strict=True)))

    keys_behind = [row[0] for row in rows if is_behind(*row)]
    return SweepPage(keys_behind, rows[-1][0] if len(rows) == limit else None)
