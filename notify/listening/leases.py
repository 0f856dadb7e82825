"""The lease of the oldest due delivery, for the listener that has the subscription's place; the
result that the listener sends; and the watch that wakes listeners who wait.

One listener at a time has the place, so that two programs do not get the deliveries by turns. The
place is in Redis, the leases are in the database: after a flush of Redis a second listener may
come, and no delivery is lost.

    pending ──leased──▶ queued, with the listener's claim ──result──▶ as the marker says
                          │  ▲
                          └──┘ leased anew, with another claim: the listener asks again without a
                               result, another listener takes over, or the lease is over

One delivery of a subscription is leased at a time, and a delivery that was leased before comes
first. So deliveries come in order, whatever was killed. An UPDATE applies only to a row that has
not changed since it was read. The claim is the fencing token.
"""

import threading
import time
import uuid
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, cast

import msgspec
from django.conf import settings
from django.db.models.functions import Now

from msgplatform.core.connections import RedisError, work_redis
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.daemons.wake_signal import Listener
from msgplatform.core.data import claims, ids, transactions
from msgplatform.core.errors import AlreadyListening, LeaseLost, Unavailable, Undecryptable
from msgplatform.core.http.messages import Request, Response
from msgplatform.core.web.long_polls import WAITING
from notify import orders, signals
from notify.directory import Subscription
from notify.maker import ending
from notify.maker.enqueue import Message, Texts, read_texts
from notify.marker import marks
from notify.models import Attempt, BizReceive, ReceiveMsg, first_due
from notify.monitor import counters
from notify.sender import webhook
from notify.sender.in_flight import ClaimedOrder
from notify.subscriptions import limits

# The beginning of a listener's claim; a sender's is 32 hexadecimal digits.
CLAIM_PREFIX = "listen-"
_CLAIM_LENGTH = 32
# The number of looks for a row, while another process changes each row before it is leased.
_MAX_LOOKS = 5
# Seconds that a place is kept after a request, for the listener's next request.
GRACE_SECONDS = 10.0
_KEY = "notify:listener:"  # string by subscription, expiring: the name of the listener
# KEYS: the place. ARGV: listener, milliseconds, 1 to take over. Returns 0 when the listener has the
# place, or the milliseconds for which another listener has it.
_TAKE = """
redis.call('DEL', KEYS[1] .. ':none')  -- a script that begins by a DEL may write to a full Redis
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] and ARGV[3] ~= '1' then return redis.call('PTTL', KEYS[1]) end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 0
"""
_Status = ReceiveMsg.Status


class Lease(msgspec.Struct, frozen=True):
    """A leased delivery, and the signed request that a sender would send, with its headers."""

    id: int
    claim: str
    until: datetime
    attempt: int
    message: Message
    request: Request
    headers: dict[str, str]

    @property
    def body(self) -> str:
        return self.request.body.decode()


class _Row(msgspec.Struct, frozen=True):
    """The columns of a delivery that must not have changed when it is leased."""

    id: int
    message_id: int
    status: int
    claimed_by: str
    next_at: datetime
    send_times: int


def take_place(subscription: int, listener: str, seconds: float, takes_over: bool = False) -> None:
    """Take or keep the place for `seconds` and GRACE_SECONDS. Raises RedisError, and
    AlreadyListening while another listener has the place, unless `takes_over`."""
    milliseconds = int((seconds + GRACE_SECONDS) * 1000)
    script = work_redis().register_script(_TAKE)
    answer: Any = script(
        keys=[f"{_KEY}{subscription}"], args=[listener, milliseconds, int(takes_over)]
    )
    if answer:
        text = "Another listener gets its deliveries. Stop it, wait, or take over."
        raise AlreadyListening(text, answer / 1000)


def lease_next(subscription: Subscription) -> Lease | None:
    """Lease the oldest due delivery, or once more the delivery that a listener has; None when
    nothing is due. A delivery that cannot be sent is set aside, as a maker does. Raises Unavailable
    when the key of a payload is missing: this delivery and the later deliveries wait."""
    if not subscription.is_active:
        return None
    for _look in range(_MAX_LOOKS):
        row = _next_row(subscription.id)
        if row is None:
            return None
        message = Texts().get([row.message_id]).get(row.message_id)
        stored_text = read_texts([message]).get(message.id) if message else None
        try:
            text = None if stored_text is None else orders.open_body(stored_text)
        except Undecryptable as error:
            # During a rotation of keys other processes may have the new key already.
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
        # Read, not counted: an UPDATE that was repeated after a lost connection changes no row.
        leased_rows = ReceiveMsg.objects.filter(id=row.id, claimed_by=claim)
        until = leased_rows.values_list("next_at", flat=True).first()
        if until is not None:
            item = orders.Item(
                row.id, message.id, row.send_times + 1, text, message.event_type, message.key
            )
            # The order is only the request's tag, and there is none.
            entry, envelope = (cast(ClaimedOrder, None), item), webhook.envelope(subscription)
            (request,) = envelope.requests([entry], int(time.time()))
            lines = (line.partition(": ") for line in request.lines)
            headers = {"content-type": envelope.content_type, **dict(subscription.headers)}
            headers |= {name: value for name, _colon, value in lines}
            return Lease(row.id, claim, until, item.attempt, message, request, headers)
    return None


def _next_row(subscription: int) -> _Row | None:
    """The next delivery. Costs two index dives, however many deliveries wait."""
    queued_row, now = _first(subscription, _Status.QUEUED)
    if queued_row:
        # A sender may have a delivery from before the consumer was switched to listening.
        is_listeners = queued_row.claimed_by.startswith(CLAIM_PREFIX)
        return queued_row if is_listeners or queued_row.next_at <= now else None
    pending_row, now = _first(subscription, _Status.PENDING)
    return pending_row if pending_row and pending_row.next_at <= now else None


def _first(subscription: int, status: int) -> tuple[_Row | None, Any]:
    """The subscription's first delivery in this status, and the database's time."""
    # The order names all columns of the index: see `first_due`.
    rows = ReceiveMsg.objects.filter(status=status, biz_receive_id=subscription)
    rows = rows.order_by("status", "biz_receive_id", "next_at", "id")
    columns = "id", "msg_id", "status", "claimed_by", "next_at", "send_times"
    values = rows.values_list(*columns, Now()).first()
    return (_Row(*values[:-1]), values[-1]) if values else (None, None)


# -- results ---------------------------------------------------------------------------------------
# The HTTP engine's errors (see `Response`) that a listener may report.
ERRORS = ("connect", "dns", "other", "reset", "timeout", "tls", "too_large")
_LOST = "This lease has passed on: the result was not counted. Ask for the next delivery."
_LOCKED = "Another process changes this delivery; send the result again."
_event_types = counters.CatalogueSubjects()


class Outcome(msgspec.Struct, frozen=True):
    """The state of the delivery. `next_attempt_at` is None when there is no next attempt."""

    outcome: str
    attempt: int
    next_attempt_at: datetime | None


def record(subscription: Subscription, row: ReceiveMsg, claim: str, response: Response) -> Outcome:
    """Mark the delivery `row` if it has this claim. A duplicate of the result changes nothing.
    Raises LeaseLost for another claim, Unavailable while another process has locked the row."""
    types = ReceiveMsg.objects.filter(pk=row.pk).values_list("msg__event_type", flat=True)
    event_type = types.first() or ""  # '': the message was deleted
    item = orders.Item(
        row.pk, row.msg_id, row.send_times + 1, "", event_type, due=row.next_at.timestamp()
    )
    order = orders.Order(subscription.id, claim, 0.0, [item])
    is_delivered = 200 <= response.status < 300
    is_kept = limits.is_answer_kept(subscription.log_answers, is_delivered)
    result = webhook.answer(order, item, response, is_delivered, time.time(), is_kept)
    if is_kept:  # the listener has read the body in its charset already, and sends text
        body = webhook.text(response.body, orders.MAX_RESPONSE_BODY)
        result = msgspec.structs.replace(result, response_body=body)
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
        with suppress(RedisError):  # the place is then free later
            # After a result the next request follows at once.
            work_redis().pexpire(f"{_KEY}{subscription.id}", int(GRACE_SECONDS * 1000))
    row.refresh_from_db(fields=["status", "next_at"])
    numbers = Attempt.objects.filter(copy_id=row.pk, claim=claim).values_list("number", flat=True)
    number = numbers.first() or 0
    endings = {_Status.DELIVERED: "delivered", _Status.EXHAUSTED: "exhausted"}
    return Outcome(endings.get(_Status(row.status), "failed"), number, row.next_attempt_at)


# -- waking those who wait -----------------------------------------------------------------------
# The pause between two queries while a listener waits.
MIN_SECONDS, MAX_SECONDS = 1.0, 5.0
_UNTIL_WOKEN = 86_400.0
_PREFIX = "notify.listen:"


def topic(subscription: int) -> str:
    """The topic of a request that waits for a delivery of this subscription."""
    return f"{_PREFIX}{subscription}"


class Watch:
    """Wakes the listeners that wait in this web server when a delivery for them is due.

    A thread, which starts with the first listener, looks for all listeners with one query: when a
    listener begins to wait, after a maker's signal, when the next delivery is due, and every few
    seconds, because signals can be lost. Without a waiting listener there is no query.
    """

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._loop: ThreadLoop | None = None
        self._asked_at = -MIN_SECONDS

    def ensure_started(self) -> None:
        """Start the thread unless it runs. The thread looks whenever a listener begins to wait,
        because a delivery may have come since the listener's own look. Raises RuntimeError if the
        system has no thread left."""
        with self._starting:
            if self._loop is None:
                loop = ThreadLoop("listeners", self._turn)
                try:
                    loop.start()
                    Listener(signals.LISTENERS, loop.wake).start()
                except RuntimeError:  # the system has no thread left: the next request tries again
                    loop.stop()
                    raise
                WAITING.call_at_add(loop.wake)
                self._loop = loop

    def _turn(self) -> float:
        """Wake listeners with due deliveries; returns the seconds until the next look."""
        pause = self._asked_at + MIN_SECONDS - time.monotonic()
        if pause > 0:
            return pause
        waiting = [int(name.removeprefix(_PREFIX)) for name in WAITING.topics(_PREFIX)]
        if not waiting:
            return _UNTIL_WOKEN
        self._asked_at = time.monotonic()
        # Each subscription costs two index dives. A leased delivery is due when its lease ends.
        rows = BizReceive.objects.filter(id__in=waiting, status__in=BizReceive.ACTIVE).order_by()
        first_times = map(first_due, ReceiveMsg.WAITING)
        seconds_until: dict[int, float] = {
            pk: min((at - now).total_seconds() for at in due_times if at)
            for pk, now, *due_times in rows.values_list("id", Now(), *first_times)
            if any(due_times)
        }
        WAITING.wake(topic(pk) for pk, seconds in seconds_until.items() if seconds <= 0)
        return max(MIN_SECONDS, min([MAX_SECONDS, *seconds_until.values()]))


WATCH = Watch()
