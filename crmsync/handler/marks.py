"""Marks: the answers of an order in the database, with their entries of the recovery log.

One transaction with a few statements marks hundreds of records.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter

import msgspec
from django.conf import settings
from django.db import transaction
from django.db.models import F, Q
from django.db.models.expressions import RawSQL
from django.utils.translation import gettext_noop as _

from crmsync.adapters.outcomes import Ok
from crmsync.directory import Crm
from crmsync.handler import statements
from crmsync.handler.adoption import of_crm, remote_ids_among
from crmsync.handler.answers import Answer, DeliveryResult, FailedCall, Fault, Unsent
from crmsync.handler.statements import NotUniform, field_and_reason, open_entries
from crmsync.handler.verdicts import Row, Verdicts, name_of
from crmsync.models import ExceptionEntry, Item, Operation, Record
from crmsync.models.crms import MAX_REMOTE_ID
from crmsync.models.operations import MAX_MESSAGE
from crmsync.monitor import counters, failures
from crmsync.operations import add_endings, take_back_endings
from crmsync.orders import Order
from msgplatform.core import alerts
from msgplatform.core.daemons.bisect import isolate
from msgplatform.core.data import chunks, claims, ids, sql, transactions

_COLUMNS = Row.__struct_fields__
_values = attrgetter(*_COLUMNS)
_ITEM = (
    "id", "operation_id", "record_id", "crm_id", "version", "attempt", "outcome", "remote_id",
    "field", "message", "at", "milliseconds",
)  # fmt: skip
# Maximum rows of one CASE: the database searches it from the beginning for each row.
_CASES = 100
_EXCEPTION = ("id", "policy_id", "crm_id", "operation_id", "kind", "message", "records", "at")


def apply(crm: Crm, order: Order, result: DeliveryResult) -> None:
    """Mark all answers; a repetition changes nothing. An answer that the database refuses is set
    aside as a fault.

    Raises what an unavailable database raises; then nothing is marked.
    """
    write = partial(_apply, crm, order, result)
    isolate(result.answers, write, partial(_set_aside, crm, order))


def _apply(
    crm: Crm, order: Order, result: DeliveryResult, answers: Sequence[Answer]
) -> Sequence[Answer]:
    # Usually `answers` has all answers; `isolate` halves them if one cannot be written. Rows about
    # the whole order are written once, with its first answer.
    is_first = answers[0] is result.answers[0]
    attempts = [answer for answer in answers if not isinstance(answer.outcome, Unsent)]
    calls = result.failed_calls if is_first else []
    buckets = [answer.entry.record for answer in attempts] + [order.policy] * len(calls)
    # Reserve ids before the transaction: a repetition finds by them whether it was committed.
    new_ids = ids.reserve(len(buckets)).ids(buckets) if buckets else []
    counts = result.counts if is_first else Counter()
    marking = Marking(crm, order, answers, attempts, calls, new_ids, counts)
    is_uniform = statements.is_uniform(result, answers)
    transactions.retrying(lambda: marking.write(is_uniform))
    outcomes = (answer.outcome for answer in attempts)
    if fault := next((outcome for outcome in outcomes if isinstance(outcome, Fault)), None):
        alerts.raise_event(_broken(crm, fault.message))
    return answers


class Marking(msgspec.Struct):
    """The marks of one order, or of a part of it. `new_ids` are for `attempts` and `calls`."""

    crm: Crm
    order: Order
    answers: Sequence[Answer]
    attempts: Sequence[Answer]
    calls: Sequence[FailedCall]
    new_ids: Sequence[int]
    counts: Counter[str] = msgspec.field(default_factory=Counter)
    first_try_at: int | None = None  # set by the last attempt to write

    def write(self, is_uniform: bool) -> None:
        """One transaction, which may be repeated."""
        if is_uniform:
            with suppress(NotUniform), transaction.atomic(durable=True):
                self._confirm()
                return
        with transaction.atomic(durable=True):
            if not self._is_written():
                self._judge()

    def _is_written(self) -> bool:
        """True if the connection broke after the commit."""
        if self.new_ids and Item.objects.filter(pk=self.new_ids[0]).exists():
            return True
        at, operation = self.first_try_at, self.answers[0].entry.operation
        rows = Operation.objects.filter(pk=operation, first_try_at=at)
        return at is not None and rows.exists()

    def _confirm(self) -> None:
        now = sql.now()
        self.first_try_at = statements.confirm(self.order, self.answers, now)
        if _being_deleted(self.crm, self.order, self.answers):
            raise NotUniform
        failures.solve_entries([answer.entry.record for answer in self.answers], self.crm.id, now)
        confirmed_counts = Counter({(self.order.policy, counters.CONFIRMED): len(self.answers)})
        _count(self.order, confirmed_counts, self.counts, now)
        self._log(now, [] if self.first_try_at else self.attempts)

    def _judge(self) -> None:
        now = sql.now()
        row_ids = sorted(answer.entry.record for answer in self.answers)
        # The poller locks them in the order of ids too, so there is no deadlock.
        locked_rows = Record.objects.select_for_update().filter(pk__in=row_ids).order_by("id")
        rows = {values[0]: Row(*values) for values in locked_rows.values_list(*_COLUMNS)}
        deleted_ids = _being_deleted(self.crm, self.order, self.answers)
        verdicts = Verdicts(self.order.claim, self.crm.waits, now, deleted_ids)
        for answer in self.answers:
            if row := rows.get(answer.entry.record):
                verdicts.judge(row, answer)
        _confirm(verdicts.confirmed, now)
        if verdicts.owned_ids:
            owned_rows = Record.objects.filter(pk__in=verdicts.owned_ids)
            claims.update_by_key(owned_rows, {"is_adopted": False})
        table = Record._meta.db_table
        due = [(*_values(row), next_at, now) for row, next_at in verdicts.changed]
        sql.insert_or_update(table, (*_COLUMNS, "next_at", "updated_at"), due)
        sql.insert_or_update(
            table, (*_COLUMNS, "updated_at"), [(*_values(row), now) for row in verdicts.late]
        )
        take_back_endings(verdicts.reopened)
        add_endings(verdicts.ended, now)
        open_entries(verdicts.dead, self.crm.id, now)
        failures.solve_entries([row.id for row, _ in verdicts.confirmed], self.crm.id, now)
        _count(self.order, _counts_of(verdicts), self.counts, now)
        self._log(now, self.attempts)

    def _log(self, now: datetime, attempts: Sequence[Answer]) -> None:
        """Log attempts of records, and calls that failed as a whole."""
        item_rows = []
        for item, answer in zip(self.new_ids, attempts, strict=False):
            entry, outcome = answer.entry, answer.outcome
            remote_id = outcome.remote_id if isinstance(outcome, Ok) else answer.remote_id
            field, message = field_and_reason(outcome)
            item_rows.append(
                (
                    item, entry.operation, entry.record, self.crm.id, entry.request.version,
                    entry.attempt + 1, name_of(outcome), remote_id[:MAX_REMOTE_ID], field, message,
                    now, answer.milliseconds,
                )
            )  # fmt: skip
        sql.insert(Item._meta.db_table, _ITEM, item_rows)
        exception_rows = [
            (
                pk, self.order.policy, self.crm.id, call.operation, call.kind,
                call.message[:MAX_MESSAGE], call.records, now,
            )
            for pk, call in zip(self.new_ids[len(self.attempts) :], self.calls, strict=False)
        ]  # fmt: skip
        sql.insert(ExceptionEntry._meta.db_table, _EXCEPTION, exception_rows)


def _being_deleted(crm: Crm, order: Order, answers: Sequence[Answer]) -> set[str]:
    """The remote ids of stored records that another worker deletes, or has deleted since the order
    was made: two leads of one person may have one id."""
    if crm.concurrency == 1:
        return set()
    remote_ids = {
        answer.outcome.remote_id or answer.remote_id
        for answer in answers
        if isinstance(answer.outcome, Ok) and not answer.entry.request.deleted
    }
    order_began = order.lease_until - settings.CRM_LEASE_SECONDS
    is_recent = Q(state=Record.State.QUEUED) | Q(
        updated_at__gte=datetime.fromtimestamp(order_began, UTC)
    )
    return remote_ids_among(of_crm(crm.id).filter(is_recent, deleted=True), remote_ids)


def _confirm(pairs: Sequence[tuple[Row, str]], now: datetime) -> None:
    """Mark records of which the CRM holds the newest version. This is the most frequent verdict."""
    values = {
        "state": Record.State.CONFIRMED, "sent_version": F("version"), "sent_digest": F("digest"),
        "attempt": 0, "next_at": None, "claimed_by": "", "sending_operation": 0, "error_class": "",
        "room": Record.ROOM, "updated_at": now,
    }  # fmt: skip
    unchanged_ids = [row.id for row, remote_id in pairs if remote_id == row.remote_id]
    for page in chunks(unchanged_ids, claims.CHUNK):
        claims.update_by_key(Record.objects.filter(pk__in=page), values)
    new = [(row.id, remote_id) for row, remote_id in pairs if remote_id != row.remote_id]
    for batch in chunks(new, _CASES):
        cases = "CASE id" + " WHEN %s THEN %s" * len(batch) + " END"
        remote_ids = RawSQL(cases, [part for pair in batch for part in pair])  # noqa: S611
        rows = Record.objects.filter(pk__in=[row_id for row_id, _ in batch])
        claims.update_by_key(rows, {**values, "remote_id": remote_ids})


def _counts_of(verdicts: Verdicts) -> counters.Counts:
    counts: counters.Counts = Counter()
    for (policy, outcome), number in verdicts.counted.items():
        name = counters.CONFIRMED if outcome == "ok" else counters.failed(outcome)
        counts[policy, name] += number
    for row, _answer, _error in verdicts.dead:
        counts[row.policy_id, counters.DEAD] += 1
    return counts


def _count(order: Order, counts: counters.Counts, calls: Mapping[str, int], now: datetime) -> None:
    counts += Counter({(order.policy, name): number for name, number in calls.items()})
    counters.add(counts, now)


def _set_aside(crm: Crm, order: Order, answer: Answer, error: Exception) -> alerts.AlertEvent:
    """Mark an answer without the CRM's message, which the database refuses."""
    text = f"The answer cannot be written: {type(error).__name__}"
    is_ok = isinstance(answer.outcome, Ok)
    plain = Answer(answer.entry, Ok("") if is_ok else Fault(text), answer.milliseconds)
    _apply(crm, order, DeliveryResult([plain]), [plain])
    return _broken(crm, text)


def _broken(crm: Crm, text: str) -> alerts.AlertEvent:
    return alerts.AlertEvent.of(
        f"crm.fault:{crm.id}",
        _("Records of the CRM %(name)s are dead by a fault of its adapter"),
        _("%(fault)s. They are in the recovery log; correct the adapter and try them again."),
        name=crm.name,
        fault=text,
    )
