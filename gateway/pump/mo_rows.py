"""The archive's rows of MOs and UserRpts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import transaction

from gateway.failures import FLOW
from gateway.lifecycle.messages import Mo
from gateway.models import SgipMo, SgipUserRpt
from gateway.pump.rows import insert, time_of
from msgplatform.core.data import sql, transactions
from msgplatform.models import MinuteCounter

_AT_ONCE = timedelta(seconds=1)  # a transaction that took longer is dated by its end


def write(messages: Sequence[Mo]) -> None:
    """Archive MOs and UserRpts; one that is there already stays as it is."""
    transactions.retrying(partial(_write, messages))


def _write(messages: Sequence[Mo]) -> None:
    now = sql.now()
    with transaction.atomic(durable=True):
        mos = [message for message in messages if message.kind == "mo"]
        list_times = {biz: _after_others(biz, now) for biz in sorted({mo.biz for mo in mos})}
        rows = [_mo_row(mo, list_times[mo.biz]) for mo in mos]
        insert(SgipMo, rows)  # first, for this waits for another pump that writes the same ones now
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
        insert(SgipUserRpt, user_reports)
        counts: Counter[tuple[int, int, str]] = Counter()
        for row in new_rows:
            counts[row["biz_id"], row["account_id"], "mo"] += 1
            if row["gateway_id"]:  # it is known over which gateway it came
                counts[row["biz_id"], -row["gateway_id"], "mo"] += 1
        MinuteCounter.add(FLOW, counts, now)
        # What took long is not put before what others have archived, and a caller has seen,
        # meanwhile.
        late_ids = [row["id"] for row in new_rows if row["archived_at"] == now]
        if late_ids and (at := sql.now()) - now > _AT_ONCE:
            SgipMo.objects.filter(id__in=late_ids).update(archived_at=at)


def _after_others(biz: int, now: datetime) -> datetime:
    """When MOs of a system come into the archive, for the order of the list that callers follow
    (`search.incoming`): after all that are there, also when the database's clock went back."""
    later_rows = SgipMo.objects.filter(biz_id=biz, archived_at__gte=now).order_by("-archived_at")
    # Only then is there one. It is locked, so that of two pumps the second comes after the first.
    if later_rows.select_for_update().first() is None:
        return now
    newest: datetime = later_rows.values_list("archived_at", flat=True)[0]
    return newest + timedelta(microseconds=1)


def _mo_row(mo: Mo, archived_at: datetime) -> dict[str, Any]:
    return {
        "id": int(mo.id), "biz_id": mo.biz, "account_id": mo.account, "gateway_id": mo.gateway,
        "user_number": mo.user_number, "sp_number": mo.sp_number, "tp_pid": mo.tp_pid,
        "tp_udhi": mo.tp_udhi, "message_coding": mo.message_coding, "content": mo.content,
        "text": mo.text, "parts": mo.parts, "missing": mo.missing, "sequence": mo.sequence,
        "received_at": time_of(mo.at), "archived_at": archived_at,
    }  # fmt: skip
