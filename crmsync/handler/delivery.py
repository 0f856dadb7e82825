"""Deliver an order to the CRM, call by call: one answer for each record, whatever happens."""

import threading
import time
import traceback
from collections import deque
from collections.abc import Collection, Sequence
from itertools import groupby

from crmsync.adapters.base import CRMAdapter
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
from crmsync.handler.answers import (
    Answer,
    DeliveryResult,
    FailedCall,
    Fault,
    Unsent,
    concerns_all,
    kind_of,
    passes_test,
)
from crmsync.handler.call_limits import CallLimits
from crmsync.handler.claimed_order import ClaimedOrder, OwnEntries
from crmsync.monitor.counters import CALL_MS, CALLS
from crmsync.orders import Entry
from msgplatform.core import logging
from msgplatform.core.connections import RedisError
from msgplatform.core.errors import UNAVAILABLE

log = logging.get(__name__)

# Seconds. For a longer wait the records are released: a limit must not occupy the worker.
_MAX_WAIT = 20.0
_NO_REDIS = 1.0  # seconds until due again while Redis does not answer
_NO_DATABASE = 5.0  # seconds until due again while an adoption cannot be stored
_FRAMES = 5  # frames of an adapter's error in the log
_LOOK_SECONDS = 0.05  # seconds between looks at another worker's probe


class Delivery:
    """Delivers one order. It ends early when `stopping` is set or the lease is over: the remaining
    records are `Unsent`."""

    def __init__(
        self,
        adapter: CRMAdapter,
        limits: CallLimits,
        order: ClaimedOrder,
        stopping: threading.Event,
    ) -> None:
        self._adapter, self._limits, self._order, self._stopping = adapter, limits, order, stopping
        self._refusal: Auth | Throttled | None = None  # of all further records too
        self._conflict_ids: set[int] = set()  # records that are sent once more already
        self._suspects: list[tuple[Entry, Auth]] = []  # refused by 403 when they were alone
        self._result = DeliveryResult()
        self._milliseconds, self._is_free = 0, False  # of the last call

    def run(self, entries: OwnEntries) -> DeliveryResult:
        self._leave(entries.outdated_entries, Unsent())
        self._send(entries.to_send)
        self._answer_suspects()
        self._confirm_deletions(entries.shared_deletions)
        return self._result

    def _send(self, entries: Collection[Entry]) -> None:
        """Send entries. Entries to be looked up come first: those that the CRM does not hold are
        then sent with the others."""
        entries_left = deque(sorted(entries, key=lambda entry: not self._is_unsure(entry)))
        while entries_left:
            if self._refusal:
                self._leave(entries_left, self._refusal)
                return
            # A call looks up or stores: take only entries of the first one's kind. More of that
            # kind may follow the other kind, because a conflict puts records at the end.
            is_unsure, group = next(groupby(entries_left, self._is_unsure))
            size, after = self._admit(list(group)[: self._adapter.batch_size], is_unsure)
            if not size:
                self._leave(entries_left, Unsent(after))
                return
            batch = [entries_left.popleft() for _ in range(size)]
            if is_unsure:
                entries_left.extendleft(reversed(self._look_up(batch)))
            else:
                entries_left.extend(self._store(batch))

    def _is_unsure(self, entry: Entry) -> bool:
        """True if the record may be stored already and a call would make a second one."""
        return entry.check and not self._adapter.is_upsert

    def _admit(self, entries: Sequence[Entry], is_look_up: bool) -> tuple[int, float]:
        """The number of records in the next call; with 0 the seconds until the rest is due."""
        is_limited = self._adapter.per_second or self._adapter.per_day
        records = [self._order.adoption.to_send(entry) for entry in entries] if is_limited else []
        while (after := self._seconds_to_wait()) is None:
            if not is_limited:
                return len(entries), 0.0
            try:
                size, wait = self._limits.admit(self._adapter, records, is_look_up)
            except RedisError:
                return 0, _NO_REDIS
            if size or wait > _MAX_WAIT:
                return size, wait
            self._stopping.wait(wait)
        return 0, after

    def _seconds_to_wait(self) -> float | None:
        """None when a call may go, else the seconds until the rest is due again. While another
        worker's probe is in flight this method waits, because the probe is over soon."""
        while not self._stopping.is_set() and not self._order.is_lost:
            pause, is_probe = self._limits.pause()
            if not pause:
                return None
            if not is_probe:
                return pause
            self._stopping.wait(_LOOK_SECONDS)
        return 0.0

    # -- calls -----------------------------------------------------------------------------------
    def _look_up(self, batch: Sequence[Entry]) -> list[Entry]:
        """Ask the CRM which records it holds. Answers the records that are certain now, and returns
        the entries to be sent."""
        self._result.is_plain = False
        outcomes = self._call(batch, is_look_up=True)
        if outcomes is None:
            return []
        to_send, refused_entries = [], []
        for entry, outcome in zip(batch, outcomes, strict=True):
            match outcome:
                case Retry():  # the CRM does not hold it
                    entry.check = False
                    to_send.append(entry)
                case Conflict(existing_id=remote_id) if remote_id:
                    entry.check, entry.remote_id = False, remote_id
                    to_send.append(entry)
                case Refused() | Auth(of_record=True) if len(batch) > 1:
                    refused_entries.append(entry)
                case Auth(of_record=True):
                    self._suspects.append((entry, outcome))
                case _:
                    self._answer(entry, outcome)
        self._send_halves(refused_entries)
        return to_send

    def _store(self, batch: Sequence[Entry]) -> list[Entry]:
        """Send a batch. Answers the records that are certain now, and returns the entries that are
        sent once more, with the id under which the CRM holds them."""
        batch = self._sendable(batch)
        if not batch:
            return []
        outcomes = self._call(batch, is_look_up=False)
        if outcomes is None:
            return []
        conflicts: list[tuple[Entry, Conflict]] = []
        refused_entries = []
        for entry, outcome in zip(batch, outcomes, strict=True):
            entry.check = False  # `_answer` notes an answer that says nothing
            match outcome:
                case Refused() | Auth(of_record=True) if len(batch) > 1:  # halves will show which
                    refused_entries.append(entry)
                case Auth(of_record=True):
                    self._suspects.append((entry, outcome))
                case Refused(message=text):
                    self._answer(entry, Invalid("", text))
                case Conflict() if outcome.existing_id and entry.record not in self._conflict_ids:
                    conflicts.append((entry, outcome))
                case _:
                    self._answer(entry, outcome)
        to_resend = self._adopt(conflicts)
        self._send_halves(refused_entries)
        return to_resend

    def _sendable(self, batch: Sequence[Entry]) -> Sequence[Entry]:
        """The batch without records that have lost their claim, and without deletions of a remote
        id that another worker has given to a record meanwhile."""
        try:
            claimed_ids = self._order.claimed_ids(batch)
            used_ids = self._order.used_ids(batch)
        except UNAVAILABLE:
            self._leave(batch, Unsent(_NO_DATABASE))
            return []
        batch = [entry for entry in batch if entry.record in claimed_ids]
        shared_deletions = [
            entry for entry in batch if entry.request.deleted and entry.remote_id in used_ids
        ]
        self._confirm_deletions(shared_deletions)
        return [entry for entry in batch if entry not in shared_deletions]

    def _confirm_deletions(self, entries: Collection[Entry]) -> None:
        """Answer deletions that are not sent because another record uses the CRM's record."""
        self._result.answers += [
            Answer(entry, Ok(entry.remote_id, created=False)) for entry in entries
        ]

    def _adopt(self, conflicts: Sequence[tuple[Entry, Conflict]]) -> list[Entry]:
        """Take over the ids under which the CRM holds these records. Returns the entries that are
        sent once more; the others are answered."""
        try:
            undecided_ids = self._order.adoption.adopt(conflicts, self._result.answers)
        except UNAVAILABLE:
            self._leave([entry for entry, _ in conflicts], Unsent(_NO_DATABASE))
            return []
        to_resend = []
        for entry, conflict in conflicts:
            self._result.is_plain = False
            if entry.record in undecided_ids:
                self._answer(entry, conflict)
                continue
            self._conflict_ids.add(entry.record)
            entry.remote_id = conflict.existing_id
            to_resend.append(entry)
        return to_resend

    def _send_halves(self, entries: Sequence[Entry]) -> None:
        half = len(entries) // 2
        for part in (entries[:half], entries[half:]):
            if part:
                self._send(part)

    def _call(self, batch: Sequence[Entry], is_look_up: bool) -> Sequence[Outcome] | None:
        """Call the adapter once. Returns the outcomes, or None when the whole batch is answered
        already."""
        while (is_probe := self._limits.begin(len(batch))) is None:
            if (after := self._seconds_to_wait()) is not None:
                self._leave(batch, Unsent(after))
                return None
        work = self._adapter.look_up if is_look_up else self._adapter.send
        # If the CRM answers that it does not hold a record, the call has not failed.
        failing: tuple[type, ...] = (Unknown,) if is_look_up else (Retry, Unknown)
        records = [self._order.adoption.to_send(entry) for entry in batch]
        started_at = time.monotonic()
        outcomes: Sequence[Outcome] = ()
        fault: Exception | None = None
        try:
            with send_only_while(lambda: not self._order.is_lost):
                outcomes = list(work(records))
            if len(outcomes) != len(batch):
                raise ValueError(f"{len(outcomes)} outcomes for {len(batch)} records")
        except Exception as error:  # noqa: BLE001 - an adapter may be anybody's
            fault, outcomes = error, ()
        has_failed = bool(outcomes) and all(isinstance(outcome, failing) for outcome in outcomes)
        self._limits.end(len(batch), started_at, has_failed)
        self._milliseconds, self._is_free = int((time.monotonic() - started_at) * 1000), is_probe
        self._result.counts[CALLS] += self._adapter.calls(records, is_look_up)
        self._result.counts[CALL_MS] += self._milliseconds
        if fault:
            self._isolate_fault(batch, fault)
            return None
        self._note_call(batch, outcomes, has_failed)
        return outcomes

    # -- answers ---------------------------------------------------------------------------------
    def _answer(self, entry: Entry, outcome: Outcome) -> None:
        if isinstance(outcome, Unknown):
            entry.check = True
        self._result.answers.append(
            Answer(entry, outcome, self._milliseconds, entry.remote_id, self._is_free)
        )

    def _leave(self, entries: Collection[Entry], outcome: Outcome | Unsent) -> None:
        """Answer entries that are not sent; a remote id from a look-up is kept."""
        self._result.answers += [
            Answer(entry, outcome, remote_id=entry.remote_id) for entry in entries
        ]

    def _answer_suspects(self) -> None:
        """Answer records that got a 403 when they were sent alone.

        These records are Invalid only if the CRM has stored another record and passes its test:
        credentials may be good for a test and for nothing else, and then every record would die.
        """
        stores_others = any(isinstance(answer.outcome, Ok) for answer in self._result.answers)
        is_invalid = bool(self._suspects) and stores_others and passes_test(self._adapter)
        for entry, refusal in self._suspects:
            self._answer(entry, Invalid("", refusal.message) if is_invalid else refusal)

    def _note_call(
        self, batch: Sequence[Entry], outcomes: Sequence[Outcome], has_failed: bool
    ) -> None:
        """Note outcomes that concern more than one record: a refusal, a call that failed."""
        refusal = next(filter(concerns_all, outcomes), None)
        if refusal:
            self._refusal = refusal
        if isinstance(refusal, Throttled):
            try:
                self._limits.hold(refusal.after)
            except RedisError:
                log.warning("crm_not_held", crm=self._order.order.crm)
        if refusal or has_failed:
            kind, text = kind_of(refusal or outcomes[0])
            call = FailedCall(kind, text, batch[0].operation, len(batch))
            self._result.failed_calls.append(call)

    def _isolate_fault(self, batch: Sequence[Entry], error: Exception) -> None:
        """Halve a batch for which the adapter raised an error, until the record at fault is found.
        All records are looked up first, because some may be stored by now."""
        for entry in batch:
            entry.check = True
        if len(batch) > 1:
            self._send_halves(batch)
            return
        text = self._adapter.clean(f"{type(error).__name__}: {error}")
        # The error's text may hold values of the record: the log has only the place in the code.
        where = traceback.format_tb(error.__traceback__)[-_FRAMES:]
        error_class, crm = type(error).__name__, self._order.order.crm
        log.error("crm_adapter_failed", crm=crm, error=error_class, where=where)
        self._result.answers.append(Answer(batch[0], Fault(text), remote_id=batch[0].remote_id))
