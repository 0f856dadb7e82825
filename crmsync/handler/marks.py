"""An order's answers in the database: one transaction, a few statements for hundreds of records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q
from django.db.models.expressions import RawSQL
from django.utils.translation import gettext_noop as _

from crmsync.adapters.outcomes import Ok
from crmsync.directory import Crm
from crmsync.handler import recovery_entries
from crmsync.handler.adoption import of_crm
from crmsync.handler.answers import Answer, Delivered, FailedCall, Fault, Unsent
from crmsync.handler.verdicts import Row, Verdicts, name_of
from crmsync.models import ExceptionEntry, Item, Record
from crmsync.models.crms import MAX_REMOTE_ID
from crmsync.models.operations import MAX_MESSAGE
from crmsync.monitor import counters
from crmsync.operations import endings
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


def apply(crm: Crm, order: Order, delivered: Delivered) -> None:
    """Mark all answers; may be repeated. An answer that cannot be written is set aside as a fault.

    Raises what an unavailable database raises; then nothing is marked.
    """
    part = partial(_apply, crm, order, delivered)
    isolate(delivered.answers, part, partial(_set_aside, crm, order))


def _apply(
    crm: Crm, order: Order, delivered: Delivered, answers: Sequence[Answer]
) -> Sequence[Answer]:
    # Usually `answers` are all of them; `isolate` halves them when one cannot be written. What
    # concerns the order as a whole is written with its first answer, so once.
    is_first = answers[0] is delivered.answers[0]
    tried = [answer for answer in answers if not isinstance(answer.outcome, Unsent)]
    calls = delivered.failed_calls if is_first else []
    buckets = [answer.entry.record for answer in tried] + [order.policy] * len(calls)
    # Ids come before the transaction, so that a repetition finds whether it was committed.
    made = ids.reserve(len(buckets)).ids(buckets) if buckets else []

    def once() -> None:
        with transaction.atomic(durable=True):
            if made and Item.objects.filter(pk=made[0]).exists():
                return  # the connection broke after the commit
            now = sql.now()
            row_ids = sorted(answer.entry.record for answer in answers)
            # In the order of ids, as the poller locks them: nobody waits in a circle.
            locked = Record.objects.select_for_update().filter(pk__in=row_ids).order_by("id")
            rows = {values[0]: Row(*values) for values in locked.values_list(*_COLUMNS)}
            verdicts = Verdicts(order.claim, crm.waits, now, _being_deleted(crm, order, answers))
            for answer in answers:
                if row := rows.get(answer.entry.record):
                    verdicts.judge(row, answer)
            _write(crm, verdicts, now)
            _count(order, verdicts, delivered.counts if is_first else Counter(), now)
            _log(crm, order, tried, calls, made, now)

    transactions.retrying(once)
    for fault in [answer.outcome for answer in tried if isinstance(answer.outcome, Fault)][:1]:
        alerts.raise_event(_broken(crm, fault.message))
    return answers


def _being_deleted(crm: Crm, order: Order, answers: Sequence[Answer]) -> set[str]:
    """Of the ids under which the CRM has stored these records, those that another lane deletes, or
    has deleted since the order was made: two leads of one person have one id."""
    if crm.concurrency == 1:
        return set()
    stored = {
        answer.outcome.remote_id or answer.remote_id
        for answer in answers
        if isinstance(answer.outcome, Ok) and not answer.entry.request.deleted
    }
    began = order.lease_until - settings.CRM_LEASE_SECONDS
    is_recent = Q(state=Record.State.QUEUED) | Q(updated_at__gte=datetime.fromtimestamp(began, UTC))
    doubted: set[str] = set()
    for some in chunks(sorted(stored - {""}), claims.CHUNK):
        rows = of_crm(crm.id).filter(is_recent, remote_id__in=some, deleted=True)
        doubted.update(rows.order_by().values_list("remote_id", flat=True))
    return doubted


def _write(crm: Crm, verdicts: Verdicts, now: datetime) -> None:
    _confirm(verdicts.confirmed, now)
    if verdicts.own:
        claims.update_by_key(Record.objects.filter(pk__in=verdicts.own), {"is_adopted": False})
    table = Record._meta.db_table
    due = [(*_values(row), next_at, now) for row, next_at in verdicts.changed]
    sql.insert_or_update(table, (*_COLUMNS, "next_at", "updated_at"), due)
    sql.insert_or_update(
        table, (*_COLUMNS, "updated_at"), [(*_values(row), now) for row in verdicts.late]
    )
    endings.take_back(verdicts.reopened)
    endings.add(verdicts.ended, now)
    recovery_entries.open_for(verdicts.dead, crm.id, now)
    recovery_entries.solve([row.id for row, _ in verdicts.confirmed], crm.id, now)


def _confirm(confirmed: Sequence[tuple[Row, str]], now: datetime) -> None:
    """The CRM holds their newest version; by far the most frequent verdict."""
    values = {
        "state": Record.State.CONFIRMED, "sent_version": F("version"), "sent_digest": F("digest"),
        "attempt": 0, "next_at": None, "claimed_by": "", "sending_operation": 0, "error_class": "",
        "updated_at": now,
    }  # fmt: skip
    same = [row.id for row, remote_id in confirmed if remote_id == row.remote_id]
    for some in chunks(same, claims.CHUNK):
        claims.update_by_key(Record.objects.filter(pk__in=some), values)
    new = [(row.id, remote_id) for row, remote_id in confirmed if remote_id != row.remote_id]
    for few in chunks(new, _CASES):
        cases = "CASE id" + " WHEN %s THEN %s" * len(few) + " END"
        remote_ids = RawSQL(cases, [part for each in few for part in each])  # noqa: S611
        rows = Record.objects.filter(pk__in=[row_id for row_id, _ in few])
        claims.update_by_key(rows, {**values, "remote_id": remote_ids})


def _count(order: Order, verdicts: Verdicts, calls: Mapping[str, int], now: datetime) -> None:
    counts: counters.Counts = Counter()
    for (policy, outcome), number in verdicts.counted.items():
        name = counters.CONFIRMED if outcome == "ok" else counters.failed(outcome)
        counts[policy, name] += number
    for row, _answer, _error in verdicts.dead:
        counts[row.policy_id, counters.DEAD] += 1
    counts += Counter({(order.policy, name): number for name, number in calls.items()})
    counters.add(counts, now)


def _log(
    crm: Crm, order: Order, tried: Sequence[Answer], calls: Sequence[FailedCall],
    made: Sequence[int], now: datetime,
) -> None:  # fmt: skip
    """Each try of a record, and the calls that failed as a whole; `made` are ids for both."""
    rows = []
    for item, answer in zip(made, tried, strict=False):
        entry, outcome = answer.entry, answer.outcome
        remote_id = outcome.remote_id if isinstance(outcome, Ok) else answer.remote_id
        field, message = recovery_entries.said(outcome)
        rows.append(
            (
                item, entry.operation, entry.record, crm.id, entry.request.version,
                entry.attempt + 1, name_of(outcome), remote_id[:MAX_REMOTE_ID], field, message,
                now, answer.milliseconds,
            )
        )  # fmt: skip
    sql.insert(Item._meta.db_table, _ITEM, rows)
    failed = [
        (
            pk, order.policy, crm.id, call.operation, call.kind, call.message[:MAX_MESSAGE],
            call.records, now,
        )
        for pk, call in zip(made[len(tried) :], calls, strict=False)
    ]  # fmt: skip
    sql.insert(ExceptionEntry._meta.db_table, _EXCEPTION, failed)


def _set_aside(crm: Crm, order: Order, answer: Answer, error: Exception) -> alerts.AlertEvent:
    """Mark this answer without the CRM's words, which the database does not take."""
    text = f"The answer cannot be written: {type(error).__name__}"
    is_ok = isinstance(answer.outcome, Ok)
    plain = Answer(answer.entry, Ok("") if is_ok else Fault(text), answer.milliseconds)
    _apply(crm, order, Delivered([plain]), [plain])
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
