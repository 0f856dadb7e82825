"""The lease of the oldest due delivery, for the listener that has the place.

    pending ──leased──▶ queued, with the listener's claim ──result──▶ as the marker says
                          │  ▲
                          └──┘ leased anew, with another claim: the listener asks again without a
                               result, another takes over, or the lease is over

One delivery of a subscription is out at a time, and one that was out comes before all others: so
they come in order, whatever was killed. A row changes only while it is as it was read; the claim
is the fencing token.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast

from django.conf import settings
from django.db.models.functions import Now

from msgplatform.core.data import claims
from msgplatform.core.errors import Unavailable, Undecryptable
from msgplatform.core.http.messages import Request
from notify import orders
from notify.directory import Subscription
from notify.maker import ending
from notify.maker.payloads import Message, Texts, read_texts
from notify.models import ReceiveMsg
from notify.sender import webhook
from notify.sender.claimed_order import ClaimedOrder

# The beginning of a listener's claim; a sender's is 32 hexadecimal digits.
CLAIM_PREFIX = "listen-"
_CLAIM_LENGTH = 32
# A row that another process changed in between is looked for once more, so many times.
_TRIES = 5
_Status = ReceiveMsg.Status


@dataclass(frozen=True)
class Lease:
    """A delivery that is out, and the signed request that a sender would make of it."""

    id: int
    claim: str
    until: datetime
    attempt: int
    message: Message
    request: Request


@dataclass(frozen=True)
class _Row:
    """The columns of a delivery on which its lease depends, as they were read."""

    id: int
    message_id: int
    status: int
    claimed_by: str
    next_at: datetime
    send_times: int


def lease_next(subscription: Subscription) -> Lease | None:
    """Lease the oldest due delivery, or once more the one that a listener has; None when nothing is
    due. A delivery that cannot be sent is set aside, as a maker does. Raises Unavailable when the
    key of its payload is missing: it waits, and those after it."""
    if not subscription.is_active:
        return None
    for _try in range(_TRIES):
        row = _next_row(subscription.id)
        if row is None:
            return None
        message = Texts().get([row.message_id]).get(row.message_id)
        stored_text = read_texts([message]).get(message.id) if message else None
        try:
            text = None if stored_text is None else orders.open_body(stored_text)
        except Undecryptable as error:
            # While the key is rotated other processes may have it already.
            raise Unavailable(
                f"The payload of message {row.message_id} is encrypted: {error}."
            ) from error
        if message is None or text is None:
            reason = ending.GONE if message is None else ending.UNREADABLE
            claim = row.claimed_by if row.status == _Status.QUEUED else None
            ending.set_aside(subscription.id, [row.id], reason, claim)
            continue
        claim = f"{CLAIM_PREFIX}{uuid.uuid4().hex}"[:_CLAIM_LENGTH]
        rows = ReceiveMsg.objects.filter(
            id=row.id, status=row.status, claimed_by=row.claimed_by, send_times=row.send_times
        )
        if row.status == _Status.PENDING:
            rows = rows.filter(next_at__lte=Now())
        lease = timedelta(seconds=settings.NOTIFY_LEASE_SECONDS)
        values = {"status": _Status.QUEUED, "claimed_by": claim, "next_at": Now() + lease}
        claims.update_by_key(rows, {**values, "updated_at": Now()})
        # Asked for, not counted: an UPDATE that was repeated after a lost connection changes no
        # row.
        leased_rows = ReceiveMsg.objects.filter(id=row.id, claimed_by=claim)
        until = leased_rows.values_list("next_at", flat=True).first()
        if until is not None:
            item = orders.Item(
                row.id, message.id, row.send_times + 1, text, message.event_type, message.key
            )
            # The order is only the request's tag, and there is none.
            entry = cast(ClaimedOrder, None), item
            (request,) = webhook.envelope(subscription).requests([entry], int(time.time()))
            return Lease(row.id, claim, until, item.attempt, message, request)
    return None


def headers(subscription: Subscription, request: Request) -> dict[str, str]:
    """The headers of the request, as a sender would send them."""
    lines = [("content-type", webhook.envelope(subscription).content_type), *subscription.headers]
    request_lines = (line.partition(": ") for line in request.lines)
    return dict([*lines, *((name, value) for name, _colon, value in request_lines)])


def _next_row(subscription: int) -> _Row | None:
    """The delivery whose turn it is: two index dives, however many wait."""
    out, now = _first(subscription, _Status.QUEUED)
    if out:
        # A sender's, from before the consumer was switched: its result comes, or its lease ends.
        is_listeners = out.claimed_by.startswith(CLAIM_PREFIX)
        return out if is_listeners or out.next_at <= now else None
    pending, now = _first(subscription, _Status.PENDING)
    return pending if pending and pending.next_at <= now else None


def _first(subscription: int, status: int) -> tuple[_Row | None, Any]:
    """The subscription's first delivery in this status, and the database's time."""
    # The order names all columns of the index: see `first_due`.
    rows = ReceiveMsg.objects.filter(status=status, biz_receive_id=subscription)
    rows = rows.order_by("status", "biz_receive_id", "next_at", "id")
    columns = "id", "msg_id", "status", "claimed_by", "next_at", "send_times"
    values = rows.values_list(*columns, Now()).first()
    return (_Row(*values[:-1]), values[-1]) if values else (None, None)
