"""Take in short messages: checked, routed, safe in Redis before the answer.

One service behind XML-RPC and REST. `prepare` checks, and nothing is accepted or counted before
`commit`, which gives a verdict for each request (`created`, `duplicate`, `rejected`) and raises
only when nothing is known about any of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import msgspec
from django.conf import settings
from django.utils.translation import gettext_noop

from gateway import signals
from gateway.connections import sms_redis
from gateway.directory import Account, Directory
from gateway.intake import request as sms_request
from gateway.intake.daily_limit import LimitReached, allowance
from gateway.intake.request import Request
from gateway.intake.routing import Router
from gateway.lifecycle import store
from gateway.lifecycle.messages import Mt
from msgplatform.core.connections import patiently
from msgplatform.core.data import ids
from msgplatform.core.errors import InvalidInput
from msgplatform.core.intake.idempotency import payload_hash
from msgplatform.core.intake.verdicts import Verdict
from msgplatform.core.lazy_text import lazy_message

# The fields that make it the same request. `reference` changes nothing of what is sent.
_HASHED = ("to", "text", "account", "extension", "priority", "schedule_at", "expire_at")


@dataclass(frozen=True, slots=True)
class _Checked:
    """A request with nothing wrong; `routes` are those of its numbers, `parts` of its text."""

    request: Request
    account: Account
    numbers: list[str]
    routes: list[list[int]]
    parts: int
    allowance: store.Allowance | None


@dataclass(frozen=True, slots=True)
class Prepared:
    """Requests of which nothing is stored yet: the verdicts of some, and by their places what the
    others are to be stored as."""

    verdicts: list[Verdict | None]
    calls: dict[int, store.Call]


class Intake:
    """Checks against what the directory knows; one for a process (see `intake`)."""

    def __init__(self, directory: Directory | None = None) -> None:
        self.directory = directory or Directory()
        self.router = Router(self.directory)

    def send_many(self, asked: Sequence[Request]) -> list[Verdict]:
        """Store requests with one script. Raises RedisError: then nothing is known, repeat with
        the same keys."""
        return self.commit(self.prepare(asked))

    def prepare(self, asked: Sequence[Request]) -> Prepared:
        """Check requests. Raises RedisError: then nothing was accepted."""
        self.directory.refresh()
        verdicts = _repeats(asked)
        checked: dict[int, _Checked] = {}
        named: dict[tuple[int, str], _Checked] = {}
        again: dict[int, store.Call] = {}
        for place, request in enumerate(asked):  # a wrong one does not keep the others out
            if verdicts[place] is not None:
                continue
            name = request.biz, request.idempotency_key
            if name in named:
                # Neither checked nor counted twice: the script says what it repeats.
                limit = named[name].allowance
                again[place] = store.Call((), *name, _hash(request), limit)
                continue
            try:
                checked[place] = self._check(request)
            except InvalidInput as error:
                verdicts[place] = Verdict.rejected(error)
                continue
            if request.idempotency_key:
                named[name] = checked[place]
        calls = zip(checked, _calls(list(checked.values())), strict=True)
        return Prepared(verdicts, {**dict(calls), **again})  # each behind the one that it repeats

    @patiently()  # what may be stored already is better waited for
    def commit(self, prepared: Prepared) -> list[Verdict]:
        """Store them with one script. Raises RedisError: then nothing is known."""
        verdicts, calls = list(prepared.verdicts), prepared.calls
        if not calls:
            return [verdict for verdict in verdicts if verdict is not None]
        firsts = store.accept(list(calls.values()), settings.SMS_IDEMPOTENCY_SECONDS)
        for (place, call), first in zip(calls.items(), firsts, strict=True):
            made = [message.id for message in call.messages]
            if isinstance(first, store.OverLimit):
                verdicts[place] = _over_limit(call)
                continue
            # Another call with the same key may have come since we looked for repeats. With our own
            # ids it is this one: the script's answer was lost, and the client has run it again.
            verdicts[place] = (
                Verdict("created", ids=made)
                if first is None or first.ids == made
                else Verdict.duplicate_or_conflict(first.hash == call.payload_hash, ids=first.ids)
            )
        signals.SENDER.send()
        return [verdict for verdict in verdicts if verdict is not None]

    def _check(self, request: Request) -> _Checked:
        account = self.directory.account(request.biz, request.account)
        if account is None and request.account:
            words = gettext_noop("there is no account %(name)s")
            raise InvalidInput(lazy_message(words, name=repr(request.account)), "account")
        if account is None:
            raise InvalidInput(lazy_message(self._without_account(request.biz)), "account")
        numbers = sms_request.numbers(request.to, account)
        parts = sms_request.check(request, account)
        routes = [self.router.route(account, number) for number in numbers]
        if request.gateway:
            routes = [_only(request.gateway, route) for route in routes]
        return _Checked(request, account, numbers, routes, parts, allowance(account, len(numbers)))

    def _without_account(self, biz: int) -> str:
        """Why there is none for a request that names none."""
        if any(account.biz_id == biz for account in self.directory.accounts.values()):
            return gettext_noop("name an account: there is no default one")
        return gettext_noop(
            "this system has no SMS account that is switched on: the operator adds one in the "
            "console"
        )


def _only(gateway: int, route: list[int]) -> list[int]:
    """Raises InvalidInput unless the route could lead over this gateway."""
    if gateway not in route:
        words = gettext_noop("this gateway is not for this account and number")
        raise InvalidInput(lazy_message(words), "gateway")
    return [gateway]


def _calls(checked: Sequence[_Checked]) -> list[store.Call]:
    """With ids, all of one block: one look at the allocator for all of them."""
    if not checked:
        return []
    buckets = [ids.bucket(one.request.biz, one.request.idempotency_key or None) for one in checked]
    wanted = [bucket for one, bucket in zip(checked, buckets, strict=True) for _ in one.numbers]
    made = iter(ids.reserve(len(wanted)).ids(wanted))
    calls = []
    for one in checked:
        request = one.request
        own = [str(message_id) for message_id in islice(made, len(one.numbers))]
        messages = [
            _message(request, one.account, message_id, number, route)
            for message_id, number, route in zip(own, one.numbers, one.routes, strict=True)
        ]
        calls.append(
            store.Call(
                messages,
                request.biz,
                request.idempotency_key,
                _hash(request),
                one.allowance,
                messages[0].sp_number if one.parts > 1 else "",
            )
        )
    return calls


@lru_cache(maxsize=1)
def intake() -> Intake:
    """The process' own."""
    return Intake()


def _message(
    request: Request,
    account: Account,
    message_id: str,
    number: str,
    route: list[int],
) -> Mt:
    row = account.row
    return Mt(
        id=message_id,
        biz=request.biz,
        account=account.id,
        user_number=number,
        text=request.text,
        sp_number=row.sp_number + request.extension,
        corp_id=row.corp_id,
        gateways=route,
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
    )


def _hash(request: Request) -> str:
    if not request.idempotency_key:
        return ""
    return payload_hash(msgspec.json.encode([getattr(request, name) for name in _HASHED]))


def _repeats(asked: Sequence[Request]) -> list[Verdict | None]:
    """The verdicts of those whose key is known. They come before every check: what was accepted
    once stays accepted, even if its account is switched off or has spent its limit since."""
    named = [(r.biz, r.idempotency_key) for r in asked if r.idempotency_key]
    if not named:
        sms_redis().ping()  # a Redis that is unavailable is seen before anything may be stored
    firsts = iter(store.first_calls(named))
    verdicts: list[Verdict | None] = []
    for request in asked:
        first = next(firsts) if request.idempotency_key else None
        verdicts.append(
            Verdict.duplicate_or_conflict(first.hash == _hash(request), ids=first.ids)
            if first
            else None
        )
    return verdicts


def _over_limit(call: store.Call) -> Verdict:
    limit = call.allowance.limit if call.allowance else 0
    return Verdict.rejected(LimitReached(limit, len(call.messages)))
