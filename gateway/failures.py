"""Failures of SMS: messages refused by a gateway or by ourselves, expired, or without a Report.

A Report that says that a handset could not be reached is an answer, and no failure: it
reaches the business system as `sms.report`, and the statistics count it.

The pump counts them in the transaction that archives them; sending one again takes it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop

from gateway import sgip
from gateway.connections import sms_redis
from gateway.lifecycle import keys
from gateway.models import SgipMt, SmsGateway
from msgplatform.core.flows import Failure, ViewLink
from msgplatform.models import FailureGroup
from msgplatform.models.failures import MAX_ANSWER
from msgplatform.monitor import failure_store
from msgplatform.monitor.failure_store import Loss, Rescue
from msgplatform.monitor.subjects import Subject

FLOW = "sms"
OLDEST_DAYS = 30  # what was accepted before that is not sent again
_RESULT = "result "
_MESSAGES = "admin:gateway_sgipmt_changelist"
GATEWAY = Subject(
    "gateway",
    gettext_lazy("gateway"),
    lambda: SmsGateway.objects.order_by("name"),
    gettext_noop("gateway %(id)d, which was deleted"),
    gettext_noop("no gateway"),
)
_Final = SgipMt.Final
# What may be sent again: a new message may reach whom this one perhaps did not.
AGAIN = (_Final.FAILED, _Final.EXPIRED, _Final.UNKNOWN)


def answer(final: str, result: int, error_code: int, error: str) -> str:
    """Why a message failed, by columns of its row; '' when it did not."""
    if final in (_Final.EXPIRED, _Final.UNKNOWN):
        return final
    if final != _Final.FAILED or (error_code and not result):
        return ""  # it was sent, or a Report says that it could not be delivered
    # As long as a group's name may be: who looks for the group finds its messages.
    return f"{_RESULT}{error_code}" if error_code else (error or final)[:MAX_ANSWER].strip()


def narrowed(rows: QuerySet[SgipMt], wanted: str) -> QuerySet[SgipMt]:
    """Those of these rows that have this answer."""
    if wanted in (_Final.EXPIRED, _Final.UNKNOWN):
        return rows.filter(final=wanted)
    code = wanted.removeprefix(_RESULT)
    if wanted.startswith(_RESULT) and code.isascii() and code.isdigit():
        return rows.filter(error_code=code, result__gt=0)
    # Cut, maybe with a blank at its end: others with this beginning are counted too, but not sent.
    is_cut = len(wanted) >= MAX_ANSWER - 1
    said = Q(error__startswith=wanted) if is_cut else Q(error=wanted)
    if wanted == _Final.FAILED:
        said |= Q(error="")
    return rows.filter(said, error_code=0)


def answer_of(row: SgipMt) -> str:
    return answer(row.final, row.result, row.error_code, row.error)


def add(rows: Iterable[Mapping[str, Any]], now: datetime) -> None:
    """Count these rows of `sgip_mt`, as far as they are failures, in the caller's transaction."""
    lost = []
    for row in rows:
        why = answer(row["final"], row["result"], row["error_code"], row["error"])
        if why:
            lost.append(Loss(row["gateway_id"], why, row["id"], row["error"]))
    failure_store.add(FLOW, lost, now)


def sent_again(rows: Iterable[SgipMt]) -> None:
    """Their new messages were just accepted, for the first time."""
    back = [Rescue(row.gateway_id, why, row.archived_at) for row in rows if (why := answer_of(row))]
    if back:
        with transaction.atomic():
            failure_store.take_back(FLOW, back)


def turned_out_otherwise(rows: Iterable[SgipMt]) -> None:
    """These rows, as they are before they get another ending, in the caller's transaction. One that
    was sent again is not in the counts any more. Raises RedisError."""
    sent_again(
        row for row in rows
        if not sms_redis().exists(keys.idempotency(row.biz_id, resend_key(row.pk)))
    )  # fmt: skip


def resend_key(message: int | str) -> str:
    """The idempotency key of the message that repeats this one."""
    return f"resend:{message}:1"


def failures() -> list[Failure]:
    """The failures of each gateway, by answer."""
    since = timezone.localtime() - timedelta(days=OLDEST_DAYS)

    def details(group: FailureGroup, row: SmsGateway | None) -> dict[str, Any]:
        why = group.answer
        state = why if why in (_Final.EXPIRED, _Final.UNKNOWN) else str(_Final.FAILED)
        code = why.removeprefix(_RESULT)
        is_code = code.isascii() and code.isdigit()
        return {
            "said": "",  # a gateway answers with a code, and our own reasons are no content
            "meaning": _(sgip.result_text(int(code))) if is_code else group.said,
            "message": str(group.sample),
            "list_page": ViewLink(_MESSAGES, query={"final__exact": state}),
            "action": "resend",
            "filter": {
                "state": state, "answer": why, "gateway": str(group.subject),
                "since": since.strftime("%Y-%m-%d %H:%M"),
            },
        }  # fmt: skip

    return GATEWAY.failures(failure_store.open_groups(FLOW), details)
