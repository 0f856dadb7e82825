"""The archive's rows: written in bulk, by id, in a transaction that can be repeated.

A message that is archived a second time (its ending turned out later) replaces its rows, never with
a lower ending. Its parts and Reports have ids of their own, so the message's id finds them.

A pump that was frozen may come to write rows that another pump has written, and whose keys it has
deleted from Redis. So a pump asks for its lease while it holds the rows' locks: no other pump
writes them until its commit.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Model

from gateway.archive_rows import message_row, time_of
from gateway.lifecycle.messages import RANK, Finished, Mo
from gateway.models import SgipMo, SgipMt, SgipMtPart, SgipReport, SgipUserRpt
from gateway.monitor import counters, failures
from msgplatform.core.data import ids, sql, transactions
from msgplatform.core.tracing import spans

_AT_ONCE = timedelta(seconds=1)  # a longer transaction gets the time of its end
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


# -- messages ------------------------------------------------------------------------------------
def write_messages(messages: Sequence[Finished], is_leased: Callable[[], bool]) -> None:
    """Archive messages with their parts and Reports, and count them the first time.

    `is_leased` says whether the caller's lease holds; it is called in the transaction. Raises
    LeaseOver.
    """
    if not messages:
        return
    # Ids are reserved before the transaction: its repeat writes the same ids.
    part_count = sum(len(message.sent) for message in messages)
    report_count = sum(len(message.reports) for message in messages)
    blocks = ids.reserve(max(1, part_count)), ids.reserve(max(1, report_count))
    transactions.retrying(partial(_write_messages, messages, blocks, is_leased))


def _write_messages(
    messages: Sequence[Finished], blocks: tuple[ids.Block, ids.Block], is_leased: Callable[[], bool]
) -> None:
    now = sql.now()
    message_ids = [int(message.id) for message in messages]
    with transaction.atomic(durable=True):
        rows = [message_row(message, now) for message in messages]
        # Insert first: an insert waits for another pump that writes the same rows now.
        _insert(SgipMt, rows)
        if not is_leased():
            raise LeaseOver
        # Rows that were archived before have another time than this transaction's rows.
        earlier_rows = SgipMt.objects.filter(id__in=message_ids).exclude(archived_at=now)
        earlier = {row.pk: row for row in earlier_rows.defer("text")}
        earlier_finals = {pk: row.final for pk, row in earlier.items()}
        billed_segments = counters.archived_segments(list(earlier))
        if earlier:

            def is_current(message: Finished) -> bool:
                """True unless the archive has another ending that is as high or higher."""
                final = earlier_finals.get(int(message.id), message.final)
                return final == message.final or RANK[message.final] > RANK[final]

            messages = list(filter(is_current, messages))
            replaced_ids = earlier.keys() & {int(message.id) for message in messages}
            for model, field in ((SgipMt, "id"), (SgipMtPart, "mt_id"), (SgipReport, "mt_id")):
                model._default_manager.filter(**{f"{field}__in": replaced_ids}).delete()
            _insert(SgipMt, [row for row in rows if row["id"] in replaced_ids])
        traces = {int(message.id): message.mt.trace for message in messages if message.mt.trace}
        spans.store_contexts(spans.contexts(traces))
        # Each Submit of a message gets a row, so that late Reports find earlier tries too.
        part_ids, report_ids = (iter(block.ids([0] * block.count)) for block in blocks)
        parts: list[tuple[Any, ...]] = []
        reports: list[tuple[Any, ...]] = []
        for message in messages:
            last_submits = {submit.part: submit for submit in message.sent}
            for submit in message.sent:
                # The gateway's answer belongs to the last Submit of the part.
                is_last = last_submits[submit.part] is submit
                result = message.answers.get(submit.part) if is_last else None
                report = message.reports.get(submit.part) if is_last else None
                state, error, at = report or (None, None, 0.0)
                parts.append((
                    next(part_ids), int(message.id), submit.part, submit.node, submit.ts,
                    submit.seqno, message.mt.user_number, result, state, error, time_of(at),
                ))  # fmt: skip
            for part, (state, error, at) in message.reports.items():
                submit = last_submits[part]  # a Report is taken only for a part that was sent
                reports.append((
                    next(report_ids), int(message.id), part, submit.node, submit.ts, submit.seqno,
                    message.mt.user_number, state, error, time_of(at), now,
                ))  # fmt: skip
        sql.insert_or_keep(SgipMtPart._meta.db_table, _PART_COLUMNS, parts)
        sql.insert_or_keep(SgipReport._meta.db_table, _REPORT_COLUMNS, reports)
        counters.count_messages(messages, earlier_finals, billed_segments, now)
        ended_ids = {int(m.id) for m in messages if earlier_finals.get(int(m.id)) != m.final}
        failures.take_back_changed(earlier[pk] for pk in sorted(ended_ids & earlier.keys()))
        failures.add((row for row in rows if row["id"] in ended_ids), now)


# -- MOs and changes of users --------------------------------------------------------------------
def write_mos(messages: Sequence[Mo]) -> None:
    """Archive MOs and UserRpts; a row that is there already stays as it is."""
    transactions.retrying(partial(_write_mos, messages))


def _write_mos(messages: Sequence[Mo]) -> None:
    now = sql.now()
    with transaction.atomic(durable=True):
        mos = [message for message in messages if message.kind == "mo"]
        list_times = {biz: _list_time(biz, now) for biz in sorted({mo.biz for mo in mos})}
        rows: list[dict[str, Any]] = [
            {
                "id": int(mo.id), "biz_id": mo.biz, "account_id": mo.account,
                "gateway_id": mo.gateway, "user_number": mo.user_number, "sp_number": mo.sp_number,
                "tp_pid": mo.tp_pid, "tp_udhi": mo.tp_udhi, "message_coding": mo.message_coding,
                "content": mo.content, "text": mo.text, "parts": mo.parts, "missing": mo.missing,
                "sequence": mo.sequence, "received_at": time_of(mo.at),
                "archived_at": list_times[mo.biz],
            }
            for mo in mos
        ]  # fmt: skip
        # Insert first: an insert waits for another pump that writes the same rows now.
        _insert(SgipMo, rows)
        archive_rows = SgipMo.objects.filter(id__in=[row["id"] for row in rows])
        archive_times = dict(archive_rows.values_list("id", "archived_at"))
        new_rows = [row for row in rows if archive_times[row["id"]] == row["archived_at"]]
        user_reports = [
            {
                "id": int(mo.id), "gateway_id": mo.gateway, "sp_number": mo.sp_number,
                "user_number": mo.user_number, "user_condition": mo.user_condition,
                "sequence": mo.sequence, "received_at": time_of(mo.at), "archived_at": now,
            }
            for mo in messages
            if mo.kind != "mo"
        ]  # fmt: skip
        _insert(SgipUserRpt, user_reports)
        owners = ((row["biz_id"], row["account_id"], row["gateway_id"]) for row in new_rows)
        counters.count_mos(owners, now)
        # After a long transaction the rows get a later time: they must not come before rows that
        # others have archived meanwhile, and that a caller has seen.
        late_ids = [row["id"] for row in new_rows if row["archived_at"] == now]
        if late_ids and (at := sql.now()) - now > _AT_ONCE:
            SgipMo.objects.filter(id__in=late_ids).update(archived_at=at)


def _list_time(biz: int, now: datetime) -> datetime:
    """The archive's time for MOs of a system, by which callers follow the list
    (`messages.incoming`). It is later than all existing rows, also after the database's clock went
    back."""
    later_rows = SgipMo.objects.filter(biz_id=biz, archived_at__gte=now).order_by("-archived_at")
    # Lock the row: of two pumps, the second comes after the first.
    if later_rows.select_for_update().first() is None:
        return now
    newest: datetime = later_rows.values_list("archived_at", flat=True)[0]
    return newest + timedelta(microseconds=1)


def _insert(model: type[Model], rows: Sequence[dict[str, Any]]) -> None:
    """Insert rows of the same columns; a row whose id is there stays as it is."""
    if rows:
        values = (tuple(row.values()) for row in rows)
        sql.insert_or_keep(model._meta.db_table, list(rows[0]), values)
