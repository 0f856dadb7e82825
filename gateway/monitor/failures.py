"""Failures of SMS: messages refused by a gateway or by ourselves, expired, or without a Report.

A Report that says that a handset could not be reached is an answer, and no failure: it
reaches the business system as `sms.report`, and the statistics count it.

The pump counts failures in the transaction that archives them; resending a message takes it back.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import Error, transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy, gettext_noop

from gateway import codes
from gateway.connections import sms_redis
from gateway.lifecycle import keys
from gateway.models import SgipMt, SmsGateway
from gateway.monitor.counters import FLOW
from msgplatform.core import logging
from msgplatform.core.data import transactions
from msgplatform.core.flows.health import MAX_FAILURES, Failure
from msgplatform.core.flows.text import ViewLink
from msgplatform.models import FailureGroup
from msgplatform.models.failures import MAX_ANSWER
from msgplatform.monitor import failure_groups, failure_store
from msgplatform.monitor.failure_store import Loss, Rescue
from msgplatform.monitor.subjects import Subject

log = logging.get(__name__)

MAX_RESEND_DAYS = 30  # older messages are not resent
_RESULT = "result "
GATEWAY = Subject(
    "gateway",
    gettext_lazy("gateway"),
    lambda: SmsGateway.objects.order_by("name"),
    gettext_noop("gateway %(id)d, which was deleted"),
    gettext_noop("no gateway"),
)
_Final = SgipMt.Final
# A message with one of these endings may be resent: the new one may reach the recipient.
RESENDABLE = (_Final.FAILED, _Final.EXPIRED, _Final.UNKNOWN)


def failure_answer(final: str, result: int, error_code: int, error: str) -> str:
    """The reason why a message failed, from its row's columns; '' if it did not fail."""
    if final in (_Final.EXPIRED, _Final.UNKNOWN):
        return final
    # A Report's ErrorCode may be 0; our own reasons always have a sentence.
    is_report = not result if error_code else not error
    if final != _Final.FAILED or is_report:
        return ""  # sent, or reported as not delivered
    # Cut like a group's name, so that the name finds the group's messages.
    return f"{_RESULT}{error_code}" if error_code else error[:MAX_ANSWER].strip()


def with_answer(answer: str) -> Q:
    """The condition for rows that have this answer."""
    if answer in (_Final.EXPIRED, _Final.UNKNOWN):
        return Q(final=answer)
    code = answer.removeprefix(_RESULT)
    if answer.startswith(_RESULT) and code.isascii() and code.isdigit():
        return Q(final=_Final.FAILED, error_code=code, result__gt=0)
    # The answer was cut, perhaps before a blank. Other answers with this beginning are counted too,
    # but not sent.
    is_cut = len(answer) >= MAX_ANSWER - 1
    condition = Q(error__startswith=answer) if is_cut else Q(error=answer)
    return condition & Q(final=_Final.FAILED, error_code=0)


def answer_of(row: SgipMt) -> str:
    return failure_answer(row.final, row.result, row.error_code, row.error)


def add(rows: Iterable[Mapping[str, Any]], now: datetime) -> None:
    """Count these rows of `sgip_mt`, as far as they are failures, in the caller's transaction."""
    losses = []
    for row in rows:
        why = failure_answer(row["final"], row["result"], row["error_code"], row["error"])
        if why:
            losses.append(Loss(row["gateway_id"], why, row["id"], row["error"]))
    failure_store.add(FLOW, losses, now)


def take_back(rows: Iterable[SgipMt]) -> None:
    """Take back the failures of these rows."""
    rescues = [
        Rescue(row.gateway_id, why, row.archived_at) for row in rows if (why := answer_of(row))
    ]
    if rescues:
        with transaction.atomic():
            failure_store.take_back(FLOW, rescues)


def take_back_resent(rows: Iterable[SgipMt]) -> None:
    """Take back the failures of these rows: their new messages were just accepted. A row that has
    got another answer meanwhile may have left the counts already: a count is too high rather than
    too low."""
    answers = {row.pk: answer_of(row) for row in rows}
    try:
        with transaction.atomic():
            locked_rows = SgipMt.objects.select_for_update().filter(id__in=answers).order_by("id")
            take_back(row for row in locked_rows if answer_of(row) == answers[row.pk])
    except Error as error:
        # A repetition would subtract them twice if only the answer to the COMMIT was lost.
        if transactions.nothing_happened(error):
            raise
        log.warning("failures_perhaps_not_taken_back", count=len(answers), error=str(error))


def take_back_changed(rows: Iterable[SgipMt]) -> None:
    """Take rows out of the counts, in the caller's transaction, before they get another ending. A
    row that was resent has left the counts already. Raises RedisError."""
    take_back(
        row for row in rows
        if not sms_redis().exists(keys.idempotency(row.biz_id, resend_key(row.pk)))
    )  # fmt: skip


def resend_key(message: int | str) -> str:
    """The idempotency key of the message that resends this one."""
    return f"resend:{message}:1"


def failures(limit: int = MAX_FAILURES) -> list[Failure]:
    """The failures of each gateway, by answer."""
    since = timezone.localtime() - timedelta(days=MAX_RESEND_DAYS)

    def details(group: FailureGroup, row: SmsGateway | None) -> dict[str, Any]:
        why = group.answer
        state = why if why in (_Final.EXPIRED, _Final.UNKNOWN) else str(_Final.FAILED)
        code = why.removeprefix(_RESULT)
        is_code = code.isascii() and code.isdigit()
        filter_values = {
            "state": state, "answer": why, "gateway": str(group.subject),
            "since": since.isoformat(timespec="minutes"), **group.bound("failed_since"),
        }  # fmt: skip
        return {
            "said": "",  # a gateway's answer is a code, and our own reasons have no content
            "meaning": codes.meaning_of_result(int(code)) if is_code else group.said,
            "message": str(group.sample),
            "list_page": ViewLink("console:find", (FLOW,), filter_values),
            "action": "resend",
            "filter": filter_values,
        }

    return GATEWAY.failures(failure_groups.open_groups(FLOW, limit), details)
