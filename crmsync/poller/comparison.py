"""Compare every row's version with what was read of it, and read those that are behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crmsync import models
from crmsync.directory import Crm, Policy
from crmsync.models import Record, Run
from crmsync.poller import requests, runs
from crmsync.poller.distribution import DistributionCenter
from crmsync.poller.increment import Increment, Key
from crmsync.poller.source import Source
from crmsync.poller.store import Round, store
from crmsync.poller.sweep import sweep
from msgplatform.core import logging
from msgplatform.core.data import ids, sql

log = logging.get(__name__)

_PAGES_A_NOTE = 50  # a killed poller's successor repeats so many at most
_Kind = models.Policy.Kind


class Comparison:
    """One comparison after the other, each from the smallest key on; `run` is 0 between them."""

    def __init__(self, policy: Policy, holder: str, center: DistributionCenter) -> None:
        self._holder, self._center = holder, center
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
        this = Round(policy, self._holder, crm.id, operation, self.run, wanted, None)
        stored = store(this)
        if stored.operation:
            log.warning("rows_were_behind", policy=policy.name, count=len(stored.requests))
            self._center.distribute(crm, this, stored)
