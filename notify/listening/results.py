"""Store the result that a listener sends for a delivery, if the listener's claim still holds."""

import time
from collections.abc import Mapping
from datetime import datetime
from typing import cast

import msgspec

from msgplatform.core.data import ids, transactions
from msgplatform.core.errors import LeaseLost, Unavailable
from msgplatform.core.http.messages import Request, Response
from notify import orders
from notify.directory import Subscription
from notify.listening import leases
from notify.marker import marks
from notify.models import Attempt, ReceiveMsg
from notify.monitor import counters
from notify.monitor.counters import CatalogueSubjects
from notify.sender import webhook
from notify.subscriptions import limits

# The HTTP engine's errors (see `Response`) that a listener may report.
ERRORS = ("connect", "dns", "other", "reset", "timeout", "tls", "too_large")
_LOST = "This lease has passed on: the result was not counted. Ask for the next delivery."
_LOCKED = "Another process changes this delivery; send the result again."
_event_types = CatalogueSubjects()
_Status = ReceiveMsg.Status


class Answer(msgspec.Struct, frozen=True):
    """The answer of the engineer's own server. `status` 0: there was no answer, and `error` is one
    of ERRORS. `seconds` is the time that the request took."""

    status: int
    error: str = ""
    detail: str = ""
    seconds: float = 0.0
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    body: str = ""

    def response(self) -> Response:
        """The answer in the HTTP engine's form. `request` is None: the platform made no request."""
        lines = [f"HTTP/1.1 {self.status}", *(f"{k}: {v}" for k, v in self.headers.items())]
        raw = "\r\n".join([*lines, "", ""]).encode("utf-8", "replace") if self.status else b""
        body = self.body.encode("utf-8", "replace")
        detail = "".join(c if c.isprintable() else " " for c in self.detail)
        request = cast(Request, None)
        return Response(request, self.status, raw, body, self.seconds, self.error, detail, "")


class Outcome(msgspec.Struct, frozen=True):
    """The state of the delivery. `next_attempt_at` is None when there is no next attempt."""

    outcome: str
    attempt: int
    next_attempt_at: datetime | None


def record(subscription: Subscription, row: ReceiveMsg, claim: str, answer: Answer) -> Outcome:
    """Mark the delivery `row` if it has this claim. A duplicate of the result changes nothing.
    Raises LeaseLost for another claim, Unavailable while another process has locked the row."""
    types = ReceiveMsg.objects.filter(pk=row.pk).values_list("msg__event_type", flat=True)
    event_type = types.first() or ""  # '': the message was deleted
    item = orders.Item(
        row.pk, row.msg_id, row.send_times + 1, "", event_type, due=row.next_at.timestamp()
    )
    order = orders.Order(subscription.id, claim, 0.0, [item])
    is_delivered = 200 <= answer.status < 300
    is_kept = limits.is_answer_kept(subscription.log_answers, is_delivered)
    result = webhook.answer(order, item, answer.response(), is_delivered, time.time(), is_kept)
    _event_types.refresh()
    block = ids.reserve(1)
    try:
        with transactions.without_patience(), transactions.waiting_once():
            tally = transactions.retrying(
                lambda: marks.apply(
                    [result], [result], block, {subscription.id: subscription}, _event_types, True
                )
            )
    except LeaseLost:
        if not Attempt.objects.filter(copy_id=row.pk, claim=claim).exists():
            raise LeaseLost(_LOST) from None
    except transactions.Locked:
        raise Unavailable(_LOCKED) from None
    else:
        counters.add_totals(tally.counts, tally.seconds)
        leases.shorten_place(subscription.id)
    row.refresh_from_db(fields=["status", "next_at"])
    numbers = Attempt.objects.filter(copy_id=row.pk, claim=claim).values_list("number", flat=True)
    number = numbers.first() or 0
    if row.status == _Status.DELIVERED:
        return Outcome("delivered", number, None)
    if row.status == _Status.EXHAUSTED:
        return Outcome("exhausted", number, None)
    return Outcome("failed", number, row.next_attempt_at)
