"""Verdicts: the new state of a record after an answer. No I/O.

Marks are monotone: a success applies whatever the state; anything else applies only while the
record carries the order's claim: otherwise it belongs to another process. When a newer version
came meanwhile, that one is sent next, with all its attempts. When an older version arrives after a
newer one was confirmed, the newest is sent once more: the CRM may hold the older one now.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

import msgspec

from crmsync.adapters import outcomes
from crmsync.handler.answers import Answer, Fault, Unsent
from crmsync.handler.call_limits import DAY_SECONDS
from crmsync.models import Record
from crmsync.models.crms import MAX_REMOTE_ID
from crmsync.models.operations import UNKNOWN
from crmsync.orders import digest

# Seconds until a record is sent again whose id in the CRM is being deleted.
_DELETION_SECONDS = 15.0
# Minimum seconds to wait after a pause, however quickly a CRM is resumed.
_PAUSED_SECONDS = 5.0
_State = Record.State


class Row(msgspec.Struct):
    """A record as it is stored; the fields are its columns, in this order. Times are not read: a
    verdict sets them, or they stay as they are."""

    id: int
    policy_id: int
    key: str
    version: int
    deleted: bool
    operation_id: int
    sending_operation: int
    digest: str
    state: int
    attempt: int
    claimed_by: str
    sent_version: int
    sent_digest: str
    remote_id: str
    is_adopted: bool
    error_class: str


def name_of(outcome: object) -> str:
    """The name of an outcome as it is stored: `ok`, `retry`, `invalid`, …"""
    return type(outcome).__name__.lower()


class Verdicts:
    """The verdicts on one order, at `now` by the database's clock.

    `confirmed`: rows of which the CRM holds the newest version, with their remote ids. `changed`:
    rows with the time when they are due. `late`: rows of another process, for which only the sent
    version is noted. `owned_ids`: rows that the CRM created anew after people had deleted theirs.
    `ended` counts how the records of operations ended, `reopened` how many of them end anew.
    `dead`: rows whose last attempt failed. `counted`: the outcomes that applied.
    """

    def __init__(
        self, claim: str, waits: Sequence[float], now: datetime, deleted_ids: Collection[str] = ()
    ) -> None:
        self._claim, self._waits, self._now = claim, waits, now
        # The remote ids that another worker deletes, or has just deleted.
        self._deleted_ids = deleted_ids
        self.confirmed: list[tuple[Row, str]] = []
        self.changed: list[tuple[Row, datetime | None]] = []
        self.late: list[Row] = []
        self.owned_ids: list[int] = []
        self.ended: Counter[tuple[int, str]] = Counter()
        self.reopened: Counter[tuple[int, str]] = Counter()
        self.dead: list[tuple[Row, Answer, str]] = []
        self.counted: Counter[tuple[int, str]] = Counter()  # (policy, outcome)

    def judge(self, row: Row, answer: Answer) -> None:
        has_claim = row.state == _State.QUEUED and row.claimed_by == self._claim
        if isinstance(outcome := answer.outcome, outcomes.Ok):
            if has_claim or row.sent_version < answer.entry.request.version:
                self._confirm(row, answer, outcome, has_claim)
            elif row.state == _State.CONFIRMED:
                older = answer.entry.request
                if older.version < row.sent_version and digest(older) != row.sent_digest:
                    self.reopened[row.operation_id, "confirmed"] += 1
                    self._leave(row, _State.WAITING, self._now, 0, UNKNOWN)
        elif has_claim:
            self._fail(row, answer)

    def _confirm(self, row: Row, answer: Answer, outcome: outcomes.Ok, has_claim: bool) -> None:
        entry, request = answer.entry, answer.entry.request
        is_newest = row.operation_id == entry.operation
        remote_id = _usable(outcome.remote_id) or _usable(answer.remote_id) or row.remote_id
        if has_claim and is_newest and not row.deleted and remote_id in self._deleted_ids:
            row.remote_id = remote_id
            self._leave(row, _State.WAITING, self._in(_DELETION_SECONDS), 0, UNKNOWN)
            return
        # Without the claim, another process may have counted this record in the operation already.
        if has_claim or (is_newest and row.state in Record.OPEN):
            self.ended[entry.operation, "confirmed"] += 1
        self.counted[row.policy_id, "ok"] += 1
        if row.is_adopted and outcome.created:
            row.is_adopted = False
            self.owned_ids.append(row.id)
        if is_newest:
            self.confirmed.append((row, remote_id))
            return
        # A newer version was read meanwhile: note the CRM's version, and send the newer one next.
        if request.version >= row.sent_version:
            row.sent_version, row.sent_digest = request.version, digest(request)
        row.remote_id = remote_id
        if has_claim:
            self._leave(row, _State.WAITING, self._now, attempt=0)
        else:
            self.late.append(row)

    def _fail(self, row: Row, answer: Answer) -> None:
        entry, outcome = answer.entry, answer.outcome
        row.remote_id = _usable(answer.remote_id) or row.remote_id
        error = UNKNOWN if entry.check else name_of(outcome)
        if row.operation_id != entry.operation:  # a newer version was read meanwhile
            self.ended[entry.operation, "replaced"] += 1
            self._leave(row, _State.WAITING, self._now, 0, error if entry.check else "")
        else:
            match outcome:
                case Unsent(after=after):
                    # Without `check` the record was looked up already.
                    error_class = "" if row.error_class == UNKNOWN else row.error_class
                    next_error = UNKNOWN if entry.check else error_class
                    self._leave(row, _State.WAITING, self._in(after), row.attempt, next_error)
                case outcomes.Throttled(after=after):
                    self._leave(row, _State.WAITING, self._in(after), row.attempt, error)
                case outcomes.Auth():
                    due = self._in(_PAUSED_SECONDS)
                    self._leave(row, _State.WAITING, due, row.attempt, error)
                case outcomes.Retry(after=after):
                    self._count_attempt(row, answer, error, after)
                case outcomes.Unknown():
                    self._count_attempt(row, answer, error, 0.0)
                case outcomes.Invalid() | outcomes.Conflict() | outcomes.Refused() | Fault():
                    row.attempt += 1
                    self._die(row, answer, name_of(outcome))
        if not isinstance(outcome, Unsent):
            self.counted[row.policy_id, name_of(outcome)] += 1

    def _count_attempt(self, row: Row, answer: Answer, error: str, after: float) -> None:
        attempt = row.attempt + (not answer.is_free)
        if attempt > len(self._waits):
            row.attempt = attempt
            self._die(row, answer, error)
            return
        wait = self._waits[max(0, attempt - 1)] if self._waits else 0.0
        self._leave(row, _State.RETRY, self._in(max(after, wait)), attempt, error)

    def _die(self, row: Row, answer: Answer, error: str) -> None:
        self.ended[answer.entry.operation, "dead"] += 1
        # The recovery log has the reason. UNKNOWN: look the record up before sending it again.
        error_class = UNKNOWN if answer.entry.check else error
        self._leave(row, _State.DEAD, None, row.attempt, error_class)
        self.dead.append((row, answer, error))

    def _leave(
        self, row: Row, state: int, due: datetime | None, attempt: int, error: str = ""
    ) -> None:
        row.state, row.attempt, row.error_class = state, attempt, error
        row.claimed_by, row.sending_operation = "", 0
        self.changed.append((row, due))

    def _in(self, seconds: float) -> datetime:
        return self._now + timedelta(seconds=min(seconds, DAY_SECONDS))  # a CRM may ask for years


def _usable(remote_id: str) -> str:
    """The remote id, '' for one that is too long to be stored."""
    return remote_id if len(remote_id) <= MAX_REMOTE_ID else ""
