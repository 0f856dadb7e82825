"""The archive's rows: written in bulk, by id, in a transaction that can be repeated.

A message that is archived a second time (its ending turned out later) replaces its rows, never with
a lower ending. Its parts and Reports have ids of their own, so they are found by the message's.

A pump that was frozen may come to write what another one has written and deleted from Redis since.
So it asks for its lease when it holds the rows' locks: nobody writes them until its commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Model

from gateway import failures, notifications, sgip
from gateway.failures import FLOW
from gateway.lifecycle.messages import RANK, Finished
from gateway.models import SgipMt, SgipMtPart, SgipReport
from msgplatform.core.data import ids, sql, transactions
from msgplatform.models import MinuteCounter

SEGMENTS = "segments"  # the counter of what the operator bills
ERROR = "error "  # how the counters of failures begin; the code, or a word, follows
# The last day that a database and every time zone have: intake took in any `expire_at`, once.
_LAST = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
_PART_COLUMNS = (
    "id", "mt_id", "part", "node", "ts", "seqno", "user_number", "result", "state", "error_code",
    "reported_at",
)  # fmt: skip
_REPORT_COLUMNS = (
    "id", "mt_id", "part", "node", "ts", "seqno", "user_number", "state", "error_code",
    "received_at", "archived_at",
)  # fmt: skip


class LeaseOver(Exception):
    """Another pump has taken these messages over; nothing was written."""


def write_messages(messages: Sequence[Finished], are_ours: Callable[[], bool]) -> None:
    """Archive messages with their parts and Reports, and count them the first time.

    `are_ours` says whether the lease still holds; it is asked in the transaction. Raises LeaseOver.
    """
    if not messages:
        return
    # Ids are reserved before the transaction, which may be repeated: it then writes the same ones.
    parts = sum(len(message.sent) for message in messages)
    reports = sum(len(message.reports) for message in messages)
    blocks = ids.reserve(max(1, parts)), ids.reserve(max(1, reports))
    transactions.retrying(partial(_write_messages, messages, blocks, are_ours))


def _write_messages(
    messages: Sequence[Finished], blocks: tuple[ids.Block, ids.Block], are_ours: Callable[[], bool]
) -> None:
    now = sql.now()
    message_ids = [int(message.id) for message in messages]
    with transaction.atomic(durable=True):
        rows = [_mt_row(message, now) for message in messages]
        # First, for this waits for another pump that writes the same ones now.
        insert(SgipMt, rows)
        if not are_ours():
            raise LeaseOver
        # Archived before: our own rows of just now carry our time.
        earlier_rows = SgipMt.objects.filter(id__in=message_ids).exclude(archived_at=now)
        earlier = {row.pk: row for row in earlier_rows.defer("text")}
        earlier_finals = {pk: row.final for pk, row in earlier.items()}
        billed_segments = _segments_archived(earlier_finals)
        if earlier_finals:
            # Its rows are new, the same ending's, or those of a lower one.
            messages = [
                message
                for message in messages
                if (before := earlier_finals.get(int(message.id), message.final)) == message.final
                or RANK[message.final] > RANK[before]
            ]
            replaced_ids = earlier_finals.keys() & {int(message.id) for message in messages}
            for model, field in ((SgipMt, "id"), (SgipMtPart, "mt_id"), (SgipReport, "mt_id")):
                model._default_manager.filter(**{f"{field}__in": replaced_ids}).delete()
            insert(SgipMt, [row for row in rows if row["id"] in replaced_ids])
        parts, reports = _rows_of_parts(messages, blocks, now)
        _insert_tuples(SgipMtPart, _PART_COLUMNS, parts)
        _insert_tuples(SgipReport, _REPORT_COLUMNS, reports)
        count_messages(messages, earlier_finals, billed_segments, now)
        ended_ids = {int(m.id) for m in messages if earlier_finals.get(int(m.id)) != m.final}
        failures.turned_out_otherwise(earlier[pk] for pk in sorted(ended_ids & earlier.keys()))
        failures.add((row for row in rows if row["id"] in ended_ids), now)


def _mt_row(message: Finished, now: datetime) -> dict[str, Any]:
    mt = message.mt
    code, sentence = notifications.ending(message.error)
    result = next((r for r in message.results.values() if r), 0)
    return {
        "id": int(mt.id), "biz_id": mt.biz, "account_id": mt.account,
        "gateway_id": message.gateway, "sp_number": mt.sp_number,
        "charge_number": mt.charge_number, "user_number": mt.user_number,
        "corp_id": mt.corp_id, "service_type": mt.service_type, "fee_type": mt.fee_type,
        "fee_value": mt.fee_value, "given_value": mt.given_value, "agent_flag": mt.agent_flag,
        "morelateto_mt_flag": mt.morelateto_mt_flag, "priority": mt.priority,
        "expire_at": time_of(mt.expire_at), "schedule_at": time_of(mt.schedule_at),
        "report_flag": mt.report_flag, "message_coding": coding_of(mt.text, mt.signature),
        "text": mt.text, "parts": message.parts, "idempotency_key": mt.key,
        "reference": mt.reference, "final": message.final, "result": result,
        "error_code": code, "error": sentence[:100],
        "accepted_at": time_of(message.accepted_at), "submitted_at": time_of(message.submitted_at),
        "responded_at": time_of(message.responded_at), "reported_at": time_of(message.reported_at),
        "ended_at": time_of(message.ended_at), "archived_at": now,
    }  # fmt: skip


def coding_of(text: str, signature: str) -> int:
    """The MessageCoding with which the text went out."""
    return int(sgip.choose_coding(text + signature))


def _rows_of_parts(
    messages: Iterable[Finished], blocks: tuple[ids.Block, ids.Block], now: datetime
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """A row for each Submit of each message, of earlier tries too, for late Reports; and a row for
    each Report."""
    part_ids, report_ids = (iter(block.ids([0] * block.count)) for block in blocks)
    parts: list[tuple[Any, ...]] = []
    reports: list[tuple[Any, ...]] = []
    for message in messages:
        last_submits, answers = {submit.part: submit for submit in message.sent}, message.answers
        for submit in message.sent:
            # What the gateway answered belongs to the last try.
            is_last = last_submits[submit.part] is submit
            result = answers.get(submit.part) if is_last else None
            report = message.reports.get(submit.part) if is_last else None
            state, error, at = report or (None, None, 0.0)
            parts.append((
                next(part_ids), int(message.id), submit.part, submit.node, submit.ts, submit.seqno,
                message.mt.user_number, result, state, error, time_of(at),
            ))  # fmt: skip
        for part, (state, error, at) in message.reports.items():
            submit = last_submits[part]  # a Report is taken only for a part that was sent
            reports.append((
                next(report_ids), int(message.id), part, submit.node, submit.ts, submit.seqno,
                message.mt.user_number, state, error, time_of(at), now,
            ))  # fmt: skip
    return parts, reports


def segments(message: Finished) -> int:
    """How many short messages the operator bills for it: its parts that went out, without those
    that were refused."""
    # A text that was refused as a whole may have had more parts before.
    parts = {submit.part for submit in message.sent if submit.part <= message.parts}
    answers = message.answers
    return sum(1 for part in parts if not answers.get(part))


def _segments_archived(message_ids: Iterable[int]) -> Counter[int]:
    """Message → segments that were counted for it, of messages that are in the archive."""
    rows = SgipMtPart.objects.filter(mt_id__in=list(message_ids)).values_list(
        "mt_id", "part", "result"
    )
    refused_parts = {(message, part) for message, part, result in rows if result}
    sent_parts = {(message, part) for message, part, _result in rows}
    return Counter(message for message, _part in sent_parts - refused_parts)


def count_messages(
    messages: Sequence[Finished],
    earlier_finals: Mapping[int, str],
    billed_segments: Mapping[int, int],
    now: datetime,
) -> None:
    """Count each once; one that is there with another ending (it turned out later) changes its
    count. `billed` are the segments that were counted for the messages that are there."""
    endings: Counter[tuple[int, int, int, str, str]] = Counter()
    counts: Counter[tuple[int, int, str]] = Counter()
    for message in messages:
        before = earlier_finals.get(int(message.id))
        subject = message.mt.biz, message.mt.account, message.gateway
        if before != message.final:
            endings[*subject, message.final, message.error] += 1
        if before not in (None, message.final):
            endings[*subject, before, ""] -= 1
        more = segments(message) - billed_segments.get(int(message.id), 0)
        for subject_id in (message.mt.account, -message.gateway):  # a gateway's subject is negative
            counts[message.mt.biz, subject_id, SEGMENTS] += more
    for ending_key, count in endings.items():
        for key in ending(*ending_key):
            counts[key] += count
    MinuteCounter.add(FLOW, counts, now)


def ending(
    biz: int, account: int, gateway: int, final: str, error: str
) -> list[tuple[int, int, str]]:
    """What one ending counts: per account and per gateway (a negative subject), with its error."""
    names = [final, f"{ERROR}{error}"[:32]] if final == "failed" else [final]
    return [(biz, subject, name) for subject in (account, -gateway) for name in names]


def insert(model: type[Model], rows: Sequence[dict[str, Any]]) -> None:
    """Insert rows of the same columns; one whose id is there stays as it is."""
    if rows:
        columns = list(rows[0])
        _insert_tuples(model, columns, [tuple(row.values()) for row in rows])


def _insert_tuples(model: type[Model], columns: Sequence[str], rows: list[tuple[Any, ...]]) -> None:
    sql.insert_or_keep(model._meta.db_table, columns, rows)


def time_of(moment: float) -> datetime | None:
    """Of seconds since 1970; None for 0."""
    return datetime.fromtimestamp(min(moment, _LAST), UTC) if moment else None
