"""Marks: the answers of an order in the database, with their entries of the recovery log.

One transaction with a few statements marks hundreds of records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from typing import Any

import msgspec
from django.conf import settings
from django.db import transaction
from django.db.models import F, Q
from django.db.models.expressions import RawSQL
from django.utils.translation import gettext_noop as _

from crmsync.adapters.outcomes import Auth, Conflict, Invalid, Ok, Refused, Retry, Unknown
from crmsync.directory import Crm
from crmsync.handler import confirmation
from crmsync.handler.adoption import of_crm
from crmsync.handler.answers import Answer, DeliveryResult, FailedCall, Fault, Unsent
from crmsync.handler.confirmation import NotUniform
from crmsync.handler.verdicts import Row, Verdicts, name_of
from crmsync.models import ExceptionEntry, Item, Record, RecoveryEntry
from crmsync.models.crms import MAX_REMOTE_ID
from crmsync.models.operations import MAX_MESSAGE
from crmsync.monitor import counters, failures
from crmsync.operations import add_endings, take_back_endings
from crmsync.orders import Order
from msgplatform.core import alerts
from msgplatform.core.daemons.bisect import isolate
from msgplatform.core.data import claims, ids, sql, transactions
from msgplatform.core.data.chunks import chunks
from msgplatform.core.lazy_text import lazy_message

_COLUMNS = tuple(Row.__dataclass_fields__)
_values = attrgetter(*_COLUMNS)
_ITEM = (
    "id", "operation_id", "record_id", "crm_id", "version", "attempt", "outcome", "remote_id",
    "field", "message", "at", "milliseconds",
)  # fmt: skip
# Rows of one CASE, which the database searches from its beginning for each row.
_CASES = 100
_EXCEPTION = ("id", "policy_id", "crm_id", "operation_id", "kind", "message", "records", "at")


def apply(crm: Crm, order: Order, result: DeliveryResult) -> None:
    """Mark all answers; a repetition changes nothing. An answer that cannot be written is set aside
    as a fault.

    Raises what an unavailable database raises; then nothing is marked.
    """
    write = partial(_apply, crm, order, result)
    isolate(result.answers, write, partial(_set_aside, crm, order))


def _apply(
    crm: Crm, order: Order, result: DeliveryResult, answers: Sequence[Answer]
) -> Sequence[Answer]:
    # Usually `answers` are all of them; `isolate` halves them when one cannot be written. Rows
    # about the whole order are written with its first answer, so once.
    is_first = answers[0] is result.answers[0]
    attempts = [answer for answer in answers if not isinstance(answer.outcome, Unsent)]
    calls = result.failed_calls if is_first else []
    buckets = [answer.entry.record for answer in attempts] + [order.policy] * len(calls)
    # Ids come before the transaction, so that a repetition finds whether it was committed.
    new_ids = ids.reserve(len(buckets)).ids(buckets) if buckets else []

    log = partial(_log, crm, order, attempts, calls, new_ids)
    first_try_at: int | None = None

    def is_marked() -> bool:
        """True if the connection broke after the commit."""
        if new_ids and Item.objects.filter(pk=new_ids[0]).exists():
            return True
        operation = answers[0].entry.operation
        return first_try_at is not None and confirmation.has_first_try(operation, first_try_at)

    def confirm() -> None:
        nonlocal first_try_at
        now = sql.now()
        first_try_at = confirmation.confirm(order, answers, now)
        _solve_entries([answer.entry.record for answer in answers], crm.id, now)
        ok = {(order.policy, counters.CONFIRMED): len(answers)}
        _count(order, Counter(ok), result.counts if is_first else {}, now)
        log(now, is_noted=first_try_at is not None)

    def judge() -> None:
        if is_marked():
            return
        now = sql.now()
        row_ids = sorted(answer.entry.record for answer in answers)
        # The poller locks them in the order of ids too, so there is no deadlock.
        locked_rows = Record.objects.select_for_update().filter(pk__in=row_ids).order_by("id")
        rows = {values[0]: Row(*values) for values in locked_rows.values_list(*_COLUMNS)}
        verdicts = Verdicts(order.claim, crm.waits, now, _being_deleted(crm, order, answers))
        for answer in answers:
            if row := rows.get(answer.entry.record):
                verdicts.judge(row, answer)
        _write(crm, verdicts, now)
        _count(order, _outcomes(verdicts), result.counts if is_first else {}, now)
        log(now)

    def once() -> None:
        if confirmation.is_uniform(result, answers) and not _being_deleted(crm, order, answers):
            with suppress(NotUniform), transaction.atomic(durable=True):
                confirm()
                return
        with transaction.atomic(durable=True):
            judge()

    transactions.retrying(once)
    for fault in [answer.outcome for answer in attempts if isinstance(answer.outcome, Fault)][:1]:
        alerts.raise_event(_broken(crm, fault.message))
    return answers


def _being_deleted(crm: Crm, order: Order, answers: Sequence[Answer]) -> set[str]:
    """The remote ids of stored records that another worker deletes, or has deleted since the order
    was made: two leads of one person have one id."""
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
    deleted_ids: set[str] = set()
    for some in chunks(sorted(remote_ids - {""}), claims.CHUNK):
        rows = of_crm(crm.id).filter(is_recent, remote_id__in=some, deleted=True)
        deleted_ids.update(rows.order_by().values_list("remote_id", flat=True))
    return deleted_ids


def _write(crm: Crm, verdicts: Verdicts, now: datetime) -> None:
    _confirm(verdicts.confirmed, now)
    if verdicts.owned_ids:
        claims.update_by_key(
            Record.objects.filter(pk__in=verdicts.owned_ids), {"is_adopted": False}
        )
    table = Record._meta.db_table
    due = [(*_values(row), next_at, now) for row, next_at in verdicts.changed]
    sql.insert_or_update(table, (*_COLUMNS, "next_at", "updated_at"), due)
    sql.insert_or_update(
        table, (*_COLUMNS, "updated_at"), [(*_values(row), now) for row in verdicts.late]
    )
    take_back_endings(verdicts.reopened)
    add_endings(verdicts.ended, now)
    _open_entries(verdicts.dead, crm.id, now)
    _solve_entries([row.id for row, _ in verdicts.confirmed], crm.id, now)


def _confirm(pairs: Sequence[tuple[Row, str]], now: datetime) -> None:
    """Mark records of which the CRM holds the newest version; by far the most frequent verdict."""
    values = {
        "state": Record.State.CONFIRMED, "sent_version": F("version"), "sent_digest": F("digest"),
        "attempt": 0, "next_at": None, "claimed_by": "", "sending_operation": 0, "error_class": "",
        "updated_at": now,
    }  # fmt: skip
    unchanged_ids = [row.id for row, remote_id in pairs if remote_id == row.remote_id]
    for some in chunks(unchanged_ids, claims.CHUNK):
        claims.update_by_key(Record.objects.filter(pk__in=some), values)
    new = [(row.id, remote_id) for row, remote_id in pairs if remote_id != row.remote_id]
    for few in chunks(new, _CASES):
        cases = "CASE id" + " WHEN %s THEN %s" * len(few) + " END"
        remote_ids = RawSQL(cases, [part for each in few for part in each])  # noqa: S611
        rows = Record.objects.filter(pk__in=[row_id for row_id, _ in few])
        claims.update_by_key(rows, {**values, "remote_id": remote_ids})


def _outcomes(verdicts: Verdicts) -> counters.Counts:
    counts: counters.Counts = Counter()
    for (policy, outcome), number in verdicts.counted.items():
        name = counters.CONFIRMED if outcome == "ok" else counters.failed(outcome)
        counts[policy, name] += number
    for row, _answer, _error in verdicts.dead:
        counts[row.policy_id, counters.DEAD] += 1
    return counts


def _count(
    order: Order, counts: counters.Counts, calls: Mapping[str, int], now: datetime
) -> None:
    counts += Counter({(order.policy, name): number for name, number in calls.items()})
    counters.add(counts, now)


def _log(
    crm: Crm, order: Order, attempts: Sequence[Answer], calls: Sequence[FailedCall],
    new_ids: Sequence[int], now: datetime, is_noted: bool = False,
) -> None:  # fmt: skip
    """Log each attempt of a record and each call that failed as a whole; `new_ids` are for both.
    Of attempts that the operation has noted nothing is written."""
    item_rows = []
    for item, answer in zip(new_ids, () if is_noted else attempts, strict=False):
        entry, outcome = answer.entry, answer.outcome
        remote_id = outcome.remote_id if isinstance(outcome, Ok) else answer.remote_id
        field, message = _field_and_reason(outcome)
        item_rows.append(
            (
                item, entry.operation, entry.record, crm.id, entry.request.version,
                entry.attempt + 1, name_of(outcome), remote_id[:MAX_REMOTE_ID], field, message,
                now, answer.milliseconds,
            )
        )  # fmt: skip
    sql.insert(Item._meta.db_table, _ITEM, item_rows)
    exception_rows = [
        (
            pk, order.policy, crm.id, call.operation, call.kind, call.message[:MAX_MESSAGE],
            call.records, now,
        )
        for pk, call in zip(new_ids[len(attempts) :], calls, strict=False)
    ]  # fmt: skip
    sql.insert(ExceptionEntry._meta.db_table, _EXCEPTION, exception_rows)


def _set_aside(crm: Crm, order: Order, answer: Answer, error: Exception) -> alerts.AlertEvent:
    """Mark an answer without the CRM's words, which the database does not take."""
    text = f"The answer cannot be written: {type(error).__name__}"
    is_ok = isinstance(answer.outcome, Ok)
    plain = Answer(answer.entry, Ok("") if is_ok else Fault(text), answer.milliseconds)
    _apply(crm, order, DeliveryResult([plain]), [plain])
    return _broken(crm, text)


def _broken(crm: Crm, text: str) -> alerts.AlertEvent:
    return alerts.AlertEvent(
        "crm.fault",
        lazy_message(_("Records of the CRM %(name)s are set aside by a fault"), name=crm.name),
        lazy_message(
            _("%(fault)s. They are in the recovery log; correct the adapter and try them again."),
            fault=text,
        ),
        key=f"crm.fault:{crm.id}",
    )


_State = RecoveryEntry.State
_MAX_FIELD = 128
_ENTRY = (
    "policy_id", "crm_id", "operation_id", "record_id", "key", "version", "error_class", "field",
    "reason", "attempts", "request", "state", "created_at", "handled_by",
)  # fmt: skip


def _field_and_reason(outcome: object) -> tuple[str, str]:
    """The field at fault and the reason, as the CRM gave them, cut to the length of the columns."""
    match outcome:
        case Invalid(field=field, message=text):
            return field[:_MAX_FIELD], text[:MAX_MESSAGE]
        case Retry(why=text):
            return "", text[:MAX_MESSAGE]
        case (
            Unknown(message=text) | Refused(message=text) | Fault(message=text) | Auth(message=text)
        ):
            return "", text[:MAX_MESSAGE]
        case Conflict(existing_id=other) if other:
            return "", f"The CRM holds this person as another record: {other}"[:MAX_MESSAGE]
        case Conflict():
            return "", "The CRM holds this person as another record, and does not say which."
    return "", ""


def _open_entries(dead: Sequence[tuple[Row, Answer, str]], crm_id: int, now: datetime) -> None:
    """Open an entry of the recovery log for each of these records. A record has at most one open
    entry: an entry that is open already is overwritten."""
    if not dead:
        return
    entries = RecoveryEntry.objects.filter(
        record_id__in=[row.id for row, _, _ in dead], state=_State.OPEN
    )
    open_entries = {
        record: (entry, since)
        for record, entry, since in entries.select_for_update().values_list(
            "record_id", "id", "created_at"
        )
    }
    if open_entries:  # the reason may be another one than before
        failures.take_back(
            RecoveryEntry.objects.filter(id__in=[pk for pk, _ in open_entries.values()])
        )
    new, old = [], []
    for row, answer, error in dead:
        field, reason = _field_and_reason(answer.outcome)
        request = msgspec.json.encode(answer.entry.request)
        values: list[Any] = [
            row.policy_id, crm_id, answer.entry.operation, row.id, row.key,
            answer.entry.request.version, error, field, reason, row.attempt, request,
            int(_State.OPEN),
        ]  # fmt: skip
        if row.id in open_entries:
            entry, since = open_entries[row.id]
            old.append([entry, *values, since, ""])
        else:
            new.append([*values, now, ""])
    table = RecoveryEntry._meta.db_table
    sql.insert(table, _ENTRY, new)
    sql.insert_or_update(table, ("id", *_ENTRY), old)
    failed_records = [
        (row.id, error, _field_and_reason(answer.outcome)[1]) for row, answer, error in dead
    ]
    failures.add(crm_id, failed_records, min([now, *(since for _, since in open_entries.values())]))


def _solve_entries(record_ids: Sequence[int], crm_id: int, now: datetime) -> None:
    """Mark the entries of these records, which the CRM holds now, as solved."""
    # One query for the whole order: nearly always no entry is open, and there is no more to do.
    entries = RecoveryEntry.objects.filter(crm_id=crm_id, state__in=(_State.OPEN, _State.RETRIED))
    if not record_ids or not entries.order_by().exists():
        return
    for some in chunks(record_ids, claims.CHUNK):
        some_entries = entries.filter(record_id__in=some).order_by()
        if entry_ids := list(some_entries.values_list("id", flat=True)):
            rows = RecoveryEntry.objects.filter(pk__in=entry_ids)
            failures.take_back(rows)
            rows.update(state=_State.SOLVED, handled_at=now)
