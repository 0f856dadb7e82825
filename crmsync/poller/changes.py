"""Read the changes of a policy's source from the watermark on, a round at a time."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from functools import partial

from crmsync import models
from crmsync.directory import Crm, Policy
from crmsync.models.sources import MAX_UNREAD
from crmsync.poller import requests, runs
from crmsync.poller.decisions import Round
from crmsync.poller.distribution import DistributionCenter
from crmsync.poller.reading.increment import Facts, Increment, Page, Watermark
from crmsync.poller.store import Unstorable, store, store_or_set_aside
from msgplatform.core.data import ids, transactions

_Kind = models.Policy.Kind


class Changes:
    """The changes of one source for one CRM. `run` is the id of the present run, 0 without one."""

    def __init__(self, policy: Policy, holder: str, center: DistributionCenter) -> None:
        self._holder, self._center = holder, center
        unfinished_run = runs.unfinished(policy.id, (_Kind.CHANGES, _Kind.FULL))
        self.run = unfinished_run.pk if unfinished_run else 0
        self.is_requested = bool(
            unfinished_run and unfinished_run.requested_by
        )  # `run`, by a person
        self._watermark = stored_watermark(policy.id)
        self._are_new = self._watermark is None  # the next rows are probably new
        self.facts: Facts | None = None

    def request(self, policy: Policy, increment: Increment) -> None:
        """Begin the requested run. It ends the present run, and reads the rest of it. Raises
        LeaseLost when it was begun already."""
        is_full = policy.requested == _Kind.FULL
        unread = increment.count_after(None if is_full else self._watermark, MAX_UNREAD)
        self.run = runs.begin(
            policy, self._holder, policy.requested, unread, is_requested=True, instead_of=self.run
        )
        self.is_requested = True
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
            self._go_back(policy, increment, self._watermark, page.facts.clock_back)
            page = increment.read(self._watermark, limit)
        if not page.rows:
            self._pass_early_rows(policy, crm, increment, page)
            self._finish()
            return False
        if not self.run:
            unread = increment.count_after(self._watermark, MAX_UNREAD) if page.more else 0
            unread = max(unread, len(page.rows))
            self.run = runs.begin(policy, self._holder, _Kind.CHANGES, unread)
            self.is_requested = False
        # The id comes before the transaction, which may be repeated.
        operation = ids.new(ids.bucket(policy.id, None))
        is_part = False
        while True:
            row_requests = requests.make_requests(policy, page.rows, operation)
            round = Round(
                policy, self._holder, crm.id, operation, self.run, row_requests, page.watermark,
                self._are_new,
            )  # fmt: skip
            with contextlib.suppress(Unstorable):
                if not requests.is_too_large(row_requests):
                    result = store_or_set_aside(round, is_part)
                    break
            is_part = True
            page = increment.read(self._watermark, max(1, len(page.rows) // 2))
        # Confirm only now: if the transaction had failed, the same rows would have to come again.
        increment.confirm(page)
        self._are_new = result.are_new
        self._watermark = page.watermark
        if not page.more:
            self._finish()
        if result.operation:
            self._center.distribute(crm, round, result)
        return page.more

    def _pass_early_rows(self, policy: Policy, crm: Crm, increment: Increment, page: Page) -> None:
        """Move the watermark behind rows that were read early: otherwise each look would read them
        again."""
        if page.watermark != self._watermark:
            store(Round(policy, self._holder, crm.id, 0, 0, [], page.watermark))
            increment.confirm(page)
            self._watermark = page.watermark

    def _go_back(
        self, policy: Policy, increment: Increment, watermark: Watermark, seconds_back: timedelta
    ) -> None:
        """Move the watermark back, because the source's clock went back: newer rows lie behind
        it."""
        self._watermark = increment.before(watermark, seconds_back)
        # No check of the lease: rows are only read again, and none is lost.
        rows = models.Watermark.objects.filter(policy_id=policy.id)
        transactions.retrying(partial(rows.update, update_time=self._watermark.time))
        increment.forget_step_back()

    def _finish(self) -> None:
        if self.run:
            runs.finish(self.run)
            self.run = 0


def stored_watermark(policy_id: int) -> Watermark | None:
    """The place up to which a policy's source was read; None if it was not read yet."""
    row = models.Watermark.objects.filter(policy_id=policy_id).first()
    return Watermark(row.update_time, row.key) if row else None
