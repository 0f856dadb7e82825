"""Take in short messages: checked, routed, safe in Redis before the answer.

One service behind XML-RPC, REST and the fast intake:

    accept_one, accept_later ── single requests that come together ──┐
                                                                     ├─▶ accept ─▶ one script,
    accept_many ── the requests of one call ─────────────────────────┘   one wait for the disk

`Intake.prepare` checks, and nothing is accepted or counted before `Intake.commit`, which gives a
verdict for each request (`created`, `duplicate`, `rejected`) and raises only when the outcome of
all of them is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import islice

import msgspec
from django.conf import settings

from gateway import signals
from gateway.connections import sms_redis
from gateway.directory import Directory
from gateway.intake.request import CheckedRequest, LimitReached, Request, Router, check
from gateway.lifecycle import store
from gateway.lifecycle.messages import Mt
from msgplatform.core.connections import RedisError, briefly, patiently
from msgplatform.core.data import ids
from msgplatform.core.errors import (
    UNAVAILABLE,
    InvalidInput,
    OutcomeUnknown,
    Temporary,
    Unavailable,
)
from msgplatform.core.intake.group_commit import GroupCommit
from msgplatform.core.intake.idempotency import payload_hash
from msgplatform.core.intake.verdicts import Verdict
from msgplatform.core.tracing import spans

# Maximum of recipients of a call, all items together: one script stores them, and blocks Redis.
MAX_RECIPIENTS = 10_000
# Single requests that share a script; recipients of a request that may share one: a larger request
# would hold up the others.
MAX_GROUP, MAX_SHARED_RECIPIENTS = 100, 100
# The fields that make two requests equal. `reference` does not change the message.
_HASHED = ("to", "text", "account", "extension", "priority", "schedule_at", "expire_at")


def accept_one(request: Request) -> Verdict:
    """Accept a single request; it shares a script with the others that wait in this process.

    Raises InvalidInput for too many recipients, Unavailable if nothing was stored, OutcomeUnknown
    if Redis failed meanwhile.
    """
    if len(request.to) > MAX_SHARED_RECIPIENTS:
        return accept_many([request], "to")[0]
    return _committer().submit(request)


def accept_later(
    request: Request, callback: Callable[[Verdict | None, Exception | None], None]
) -> None:
    """As `accept_one`, without waiting: another thread calls `callback` with the verdict or the
    error.

    Raises InvalidInput for more than MAX_SHARED_RECIPIENTS, and Unavailable, without such a call.
    """
    if len(request.to) > MAX_SHARED_RECIPIENTS:
        words = f"more than {MAX_SHARED_RECIPIENTS} recipients do not share a script"
        raise InvalidInput(words, "to")
    _committer().submit_later(request, callback)


def accept_many(requests: Sequence[Request], field: str = "messages") -> list[Verdict]:
    """`accept` for the requests of one call. Raises InvalidInput naming `field` for too many
    recipients in all."""
    if sum(len(request.to) for request in requests) > MAX_RECIPIENTS:
        raise InvalidInput(f"Name at most {MAX_RECIPIENTS} recipients in one request.", field)
    return accept(requests)


def accept(requests: Sequence[Request], key_seconds: int = 0) -> list[Verdict]:
    """A verdict for each request; what was accepted is durable. Idempotency keys are known for
    `key_seconds`; 0: for SMS_IDEMPOTENCY_SECONDS.

    Raises Unavailable when a server failed before anything could be stored, or refused to store it,
    OutcomeUnknown when Redis failed meanwhile, or too few replicas have the requests.
    """
    try:
        with briefly():  # nothing is written yet: a Redis that hangs must hold up no caller
            batch = intake().prepare(requests)
    except Temporary:
        raise
    except UNAVAILABLE as error:
        server = "SMS Redis" if isinstance(error, RedisError) else "database"
        raise Unavailable(
            f"The {server} does not answer; nothing was accepted. Repeat the request later."
        ) from error
    try:
        return intake().commit(batch, key_seconds)
    except RedisError as error:
        raise OutcomeUnknown(f"Redis failed: {type(error).__name__}") from error


# Made with the first request: it has a thread, which must not exist before a process forks.
@lru_cache(maxsize=1)
def _committer() -> GroupCommit[Request, Verdict]:
    return GroupCommit(accept, max_items=MAX_GROUP, name="sms-intake")


@lru_cache(maxsize=1)
def intake() -> Intake:
    """The intake of this process."""
    return Intake()


class PreparedBatch(msgspec.Struct, frozen=True):
    """Requests of which nothing is stored yet.

    `verdicts` has the verdicts that are known already, None for the others; `calls` maps the
    positions of the others to the calls that store them.
    """

    verdicts: list[Verdict | None]
    calls: dict[int, store.Call]


class Intake:
    """Checks requests against the directory and stores them; one for a process (see `intake`)."""

    def __init__(self, directory: Directory | None = None) -> None:
        self.directory = directory or Directory()
        self.router = Router(self.directory)

    def prepare(self, requests: Sequence[Request]) -> PreparedBatch:
        """Check requests. Raises RedisError: nothing was accepted then; OutcomeUnknown: requests
        that were accepted before are not on enough replicas."""
        self.directory.refresh()
        # Known keys come before every check: a message that was accepted stays accepted, even if
        # its account is switched off or has spent its limit since.
        request_keys = [(r.biz, r.idempotency_key) for r in requests if r.idempotency_key]
        if not request_keys:
            sms_redis().ping()  # notice an unavailable Redis before anything may be stored
        firsts = iter(store.first_calls(request_keys))
        verdicts: list[Verdict | None] = [None] * len(requests)
        items: dict[int, CheckedRequest] = {}
        by_key: dict[tuple[int, str], CheckedRequest] = {}
        duplicate_calls: dict[int, store.Call] = {}
        for position, request in enumerate(requests):  # a wrong request does not refuse the others
            call_key = request.biz, request.idempotency_key
            if request.idempotency_key and (first := next(firsts)):
                is_same = first.hash == _hash(request)
                verdicts[position] = Verdict.duplicate_or_conflict(is_same, ids=first.ids)
                continue
            if call_key in by_key:
                # Neither checked nor counted twice: the script says which call it duplicates.
                allowance = by_key[call_key].allowance
                duplicate_calls[position] = store.Call((), *call_key, _hash(request), allowance)
                continue
            try:
                items[position] = check(request, self.directory, self.router)
            except InvalidInput as error:
                verdicts[position] = Verdict.rejected(error)
                continue
            if request.idempotency_key:
                by_key[call_key] = items[position]
        calls = zip(items, _calls(list(items.values())), strict=True)
        # A duplicate comes after the call with its key.
        return PreparedBatch(verdicts, {**dict(calls), **duplicate_calls})

    @patiently()  # wait: the calls may be stored already
    def commit(self, batch: PreparedBatch, key_seconds: int = 0) -> list[Verdict]:
        """Store the calls with one script, and their keys for `key_seconds` (see `accept`). Raises
        RedisError and OutcomeUnknown: the outcome is unknown then; Unavailable: nothing was stored.
        """
        verdicts, calls = list(batch.verdicts), batch.calls
        if not calls:
            return [verdict for verdict in verdicts if verdict is not None]
        key_seconds = key_seconds or settings.SMS_IDEMPOTENCY_SECONDS
        firsts = store.accept(list(calls.values()), key_seconds)
        for (position, call), first in zip(calls.items(), firsts, strict=True):
            own_ids = [message.id for message in call.messages]
            if isinstance(first, store.OverLimit):
                limit = call.allowance.limit if call.allowance else 0
                verdicts[position] = Verdict.rejected(LimitReached(limit, len(call.messages)))
                continue
            # Another call with the same key may have come since the look for duplicates. With the
            # ids of this call it is this call: the client has run the script again, since the
            # script's first answer was lost.
            verdicts[position] = (
                Verdict("created", ids=own_ids)
                if first is None or first.ids == own_ids
                else Verdict.duplicate_or_conflict(first.hash == call.payload_hash, ids=first.ids)
            )
        for position, call in calls.items():
            if call.span and (verdict := verdicts[position]):
                spans.end(
                    call.span, error=verdict.code, outcome=verdict.outcome,
                    messages=len(verdict.ids), message_id=next(iter(verdict.ids), ""),
                )  # fmt: skip
        signals.SENDER.send()
        return [verdict for verdict in verdicts if verdict is not None]


def _calls(items: Sequence[CheckedRequest]) -> list[store.Call]:
    """The call that stores each request. One block has the ids of all messages, so that the
    allocator is asked once."""
    if not items:
        return []
    buckets = [
        ids.bucket(item.request.biz, item.request.idempotency_key or None)
        for item in items
        for _number in item.numbers
    ]
    message_ids = iter(ids.reserve(len(buckets)).ids(buckets))
    calls = []
    for item in items:
        request = item.request
        own_ids = [str(message_id) for message_id in islice(message_ids, len(item.numbers))]
        span, trace = None, ""
        if start := request.trace:
            span = spans.start(
                "sms accept", start.parent, kind="server", at=start.at, system=request.biz
            )
            trace = spans.context_of(span).text
        row = item.account.row
        first = Mt(
            id=own_ids[0],
            biz=request.biz,
            account=item.account.id,
            user_number=item.numbers[0],
            text=request.text,
            sp_number=row.sp_number + request.extension,
            corp_id=row.corp_id,
            gateways=item.routes[0],
            service_type=row.service_type,
            charge_number=row.charge_number,
            fee_type=row.fee_type,
            fee_value=row.fee_value,
            given_value=row.given_value,
            agent_flag=row.agent_flag,
            morelateto_mt_flag=row.morelateto_mt_flag,
            priority=request.priority,
            report_flag=row.report_flag,
            signature=row.signature,
            schedule_at=request.schedule_at,
            expire_at=request.expire_at,
            key=request.idempotency_key,
            reference=request.reference,
            trace=trace,
        )
        messages = [
            msgspec.structs.replace(first, id=message_id, user_number=number, gateways=route)
            for message_id, number, route in zip(own_ids, item.numbers, item.routes, strict=True)
        ]
        calls.append(
            store.Call(
                messages,
                request.biz,
                request.idempotency_key,
                _hash(request),
                item.allowance,
                first.sp_number if item.parts > 1 else "",
                span,
            )
        )
    return calls


def _hash(request: Request) -> str:
    if not request.idempotency_key:
        return ""
    values = [getattr(request, name) for name in _HASHED]
    if request.gateway:  # the gateway of a test SMS; business systems name none
        values.append(request.gateway)
    return payload_hash(msgspec.json.encode(values))
