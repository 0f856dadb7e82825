"""An order's records to the CRM, call by call: one answer for each record, whatever happens."""

from __future__ import annotations

import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Collection, Sequence
from types import UnionType

from crmsync.adapters.base import CRMAdapter, Record
from crmsync.adapters.client import send_only_while
from crmsync.adapters.outcomes import (
    Auth,
    Conflict,
    Invalid,
    Ok,
    Outcome,
    Refused,
    Retry,
    Throttled,
    Unknown,
)
from crmsync.handler import refusals
from crmsync.handler.answers import Answer, Delivered, FailedCall, Fault, Unsent, kind_of
from crmsync.handler.call_limits import CallLimits
from crmsync.handler.claimed_order import ClaimedOrder
from crmsync.monitor.counters import CALL_MS, CALLS
from crmsync.orders import Entry
from msgplatform.core import logging
from msgplatform.core.connections import RedisError
from msgplatform.core.errors import UNAVAILABLE

log = logging.get(__name__)

# For a longer wait (seconds) the records are released: the lane must not be kept for a limit.
_MAX_WAIT = 20.0
_NO_REDIS = 1.0  # due again after so many seconds, while Redis cannot say whether a call may go
_NO_DATABASE = 5.0  # due again after so many seconds, while an adoption cannot be stored
_FRAMES = 5  # of an adapter's error, in the log
_LOOK_SECONDS = 0.05  # how often a lane looks whether another lane's probe is over


class Delivery:
    """Delivers one order. It ends early when `stopping` is set or the lease is over: what was not
    sent by then is `Unsent`."""

    def __init__(
        self, adapter: CRMAdapter, gate: CallLimits, hand: ClaimedOrder, stopping: threading.Event
    ) -> None:
        self._adapter, self._gate, self._hand, self._stopping = adapter, gate, hand, stopping
        self._refusing: Auth | Throttled | None = None  # what all further records get too
        self._in_conflict: set[int] = set()  # records that are sent once more already
        self._suspects: list[tuple[Entry, Auth]] = []  # refused by 403 when they were alone
        self._made = Delivered()
        self._milliseconds, self._is_free = 0, False  # of the call that was answered last

    def run(
        self, entries: Collection[Entry], replaced: Collection[Entry], kept: Collection[Entry]
    ) -> Delivered:
        """Deliver `entries`. The others are not sent: `replaced` have a newer version, and `kept`
        are deletions of what another record uses."""
        self._unsent(replaced, 0.0)
        self._send(entries)
        for entry, outcome in refusals.settled(self._suspects, self._adapter, self._made.answers):
            self._answer(entry, outcome)
        self._keep(kept)
        return self._made

    def _send(self, entries: Collection[Entry]) -> None:
        """First what must be looked up, so that what the CRM does not hold goes with the others."""
        rest = deque(sorted(entries, key=lambda entry: not self._is_unsure(entry)))
        while rest:
            if self._refusing:
                self._answered(rest, self._refusing)
                return
            unsure = self._is_unsure(rest[0])
            # One call looks up or stores. At the front are records of one kind, but more of them
            # may come after some of the other kind: what a conflict sends once more is at the end.
            kinds = [self._is_unsure(entry) for entry in rest]
            most = kinds.index(not unsure) if (not unsure) in kinds else len(kinds)
            size, after = self._admitted(min(most, self._adapter.batch_size))
            if not size:
                self._unsent(rest, after)
                return
            batch = [rest.popleft() for _ in range(size)]
            if unsure:
                rest.extendleft(reversed(self._look_up(batch)))
            else:
                rest.extend(self._store(batch))

    def _is_unsure(self, entry: Entry) -> bool:
        """It may have been stored already, and sending it again would make a second record."""
        return entry.check and not self._adapter.is_upsert

    def _admitted(self, records: int) -> tuple[int, float]:
        """How many records the next call may have; with 0 the seconds until the rest is due."""
        while (after := self._refused()) is None:
            try:
                size, wait = self._gate.admit(self._adapter, records)
            except RedisError:
                return 0, _NO_REDIS
            if size or wait > _MAX_WAIT:
                return size, wait
            self._stopping.wait(wait)
        return 0, after

    def _refused(self) -> float | None:
        """None when a call may go, else the seconds until the rest is due again. While another lane
        probes the CRM this waits: the probe is over soon, and tells whether calls may go."""
        while not self._stopping.is_set() and not self._hand.is_lost:
            pause, is_probe = self._gate.pause()
            if not pause:
                return None
            if not is_probe:
                return pause
            self._stopping.wait(_LOOK_SECONDS)
        return 0.0

    # -- calls -----------------------------------------------------------------------------------
    def _look_up(self, batch: Sequence[Entry]) -> list[Entry]:
        """Ask the CRM what it holds. Answers the records that are certain now, returns those that
        are to be sent."""
        # A CRM that does not hold a record has answered all the same.
        outcomes = self._call(batch, self._adapter.look_up, Unknown)
        if outcomes is None:
            return []
        to_send = []
        for entry, outcome in zip(batch, outcomes, strict=True):
            match outcome:
                case Retry():  # the CRM does not hold it
                    entry.check = False
                    to_send.append(entry)
                case Conflict(existing_id=remote_id) if remote_id:
                    entry.check, entry.remote_id = False, remote_id
                    to_send.append(entry)
                case _:
                    self._answer(entry, outcome)
        return to_send

    def _store(self, batch: Sequence[Entry]) -> list[Entry]:
        """Send a batch. Answers the records that are certain now, returns those that are sent once
        more: the CRM said under which id it holds them."""
        batch = self._without_used(batch)
        if not batch:
            return []
        outcomes = self._call(batch, self._adapter.send, Retry | Unknown)
        if outcomes is None:
            return []
        conflicts: list[tuple[Entry, Conflict]] = []
        refused = []
        for entry, outcome in zip(batch, outcomes, strict=True):
            match outcome:
                case Refused() | Auth(of_record=True) if len(batch) > 1:  # find out by which record
                    refused.append(entry)
                case Auth(of_record=True):
                    self._suspects.append((entry, outcome))
                case Refused(message=text):
                    self._answer(entry, Invalid("", text))
                case Conflict() if outcome.existing_id and entry.record not in self._in_conflict:
                    conflicts.append((entry, outcome))
                case _:
                    self._answer(entry, outcome)
        again = self._adopted(conflicts)
        self._halves(refused)
        return again

    def _without_used(self, batch: Sequence[Entry]) -> Sequence[Entry]:
        """The batch without deletions of what another lane has given to a record meanwhile."""
        try:
            used = self._hand.used_ids(batch)
        except UNAVAILABLE:
            self._unsent(batch, _NO_DATABASE)
            return []
        kept = [each for each in batch if each.request.deleted and each.remote_id in used]
        self._keep(kept)
        return [each for each in batch if each not in kept] if kept else batch

    def _keep(self, kept: Collection[Entry]) -> None:
        self._made.answers += [Answer(entry, Ok(entry.remote_id, created=False)) for entry in kept]

    def _adopted(self, conflicts: Sequence[tuple[Entry, Conflict]]) -> list[Entry]:
        """Take the ids under which the CRM holds these records. Returns those that are sent once
        more; the others are answered."""
        adoption = self._hand.adoption
        made_ids = {
            answer.outcome.remote_id
            for answer in self._made.answers
            if isinstance(answer.outcome, Ok) and not adoption.is_adopted(answer.entry)
        }
        others = [(entry, each.existing_id) for entry, each in conflicts if not each.has_key]
        try:
            undecided = adoption.adopt(others, made_ids) if others else set()
        except UNAVAILABLE:
            self._unsent([entry for entry, _ in conflicts], _NO_DATABASE)
            return []
        again = []
        for entry, conflict in conflicts:
            if entry.record in undecided:
                self._answer(entry, conflict)
                continue
            self._in_conflict.add(entry.record)
            entry.remote_id = conflict.existing_id
            again.append(entry)
        return again

    def _halves(self, entries: Sequence[Entry]) -> None:
        half = len(entries) // 2
        for part in (entries[:half], entries[half:]):
            if part:
                self._send(part)

    def _call(
        self,
        batch: Sequence[Entry],
        work: Callable[[Sequence[Record]], Sequence[Outcome]],
        failing: type | UnionType,
    ) -> Sequence[Outcome] | None:
        """Call the adapter once; it has failed when all outcomes are `failing` ones. Returns the
        outcomes, or None when the whole batch is answered."""
        while (is_probe := self._gate.begin(len(batch))) is None:
            if (after := self._refused()) is not None:
                self._unsent(batch, after)
                return None
        started = time.monotonic()
        outcomes: Sequence[Outcome] = ()
        fault: Exception | None = None
        try:
            with send_only_while(lambda: not self._hand.is_lost):
                outcomes = list(work([self._hand.adoption.to_send(entry) for entry in batch]))
            if len(outcomes) != len(batch):
                raise ValueError(f"{len(outcomes)} outcomes for {len(batch)} records")
        except Exception as error:  # noqa: BLE001 - an adapter may be anybody's
            fault, outcomes = error, ()
        failed = bool(outcomes) and all(isinstance(each, failing) for each in outcomes)
        self._gate.answered(len(batch), started, failed)
        self._milliseconds, self._is_free = int((time.monotonic() - started) * 1000), is_probe
        self._made.counts[CALLS] += self._adapter.calls(len(batch))
        self._made.counts[CALL_MS] += self._milliseconds
        if fault:
            self._fault(batch, fault)
            return None
        self._note(batch, outcomes, failed)
        return outcomes

    # -- answers ---------------------------------------------------------------------------------
    def _answer(self, entry: Entry, outcome: Outcome) -> None:
        if isinstance(outcome, Unknown):
            entry.check = True
        self._made.answers.append(
            Answer(entry, outcome, self._milliseconds, entry.remote_id, self._is_free)
        )

    def _unsent(self, entries: Collection[Entry], after: float) -> None:
        self._answered(entries, Unsent(after))

    def _answered(self, entries: Collection[Entry], outcome: Outcome | Unsent) -> None:
        """These are not sent; what a look-up found is kept."""
        self._made.answers += [
            Answer(entry, outcome, remote_id=entry.remote_id) for entry in entries
        ]

    def _note(self, batch: Sequence[Entry], outcomes: Sequence[Outcome], failed: bool) -> None:
        """Keep what concerns more than one record: a CRM that refuses, a call that failed."""
        refusing = next(filter(refusals.is_of_all, outcomes), None)
        if refusing:
            self._refusing = refusing
        if isinstance(refusing, Throttled):
            try:
                self._gate.hold(refusing.after)
            except RedisError:
                log.warning("crm_not_held", crm=self._hand.order.crm)
        if refusing or failed:
            said = kind_of(refusing or outcomes[0])
            self._made.failed_calls.append(FailedCall(*said, batch[0].operation, len(batch)))

    def _fault(self, batch: Sequence[Entry], error: Exception) -> None:
        """The adapter raised an error: halve the batch until the record is found that causes it.
        Other records of the batch may be stored by now, so all of them are looked up first."""
        for entry in batch:
            entry.check = True
        if len(batch) > 1:
            self._halves(batch)
            return
        text = self._adapter.clean(f"{type(error).__name__}: {error}")
        # The error's own text may hold values of the record: the log says only where it was raised.
        where = traceback.format_tb(error.__traceback__)[-_FRAMES:]
        error_class, crm = type(error).__name__, self._hand.order.crm
        log.error("crm_adapter_failed", crm=crm, error=error_class, where=where)
        self._made.answers.append(Answer(batch[0], Fault(text), remote_id=batch[0].remote_id))
