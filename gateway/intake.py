"""Take in short messages: checked, routed, safe in Redis before the answer.

One service behind XML-RPC and REST. `send_many` answers a request at a time (`created`,
`duplicate`, `rejected`); it raises only when nothing is known about any of them.
"""

from __future__ import annotations

import hashlib
import re
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import msgspec
from django.conf import settings

from gateway import sgip
from gateway.directory import Account, Directory
from gateway.lifecycle import keys, store
from gateway.lifecycle.messages import Mt
from gateway.limits import LimitReached, spend
from gateway.routing import Router
from msgplatform.core import ids
from msgplatform.core.connections import sms_redis
from msgplatform.core.errors import InvalidInput

MAX_TEXT = 2000  # characters: more than 255 parts hold, and more than anybody reads
MAX_REFERENCE = 64
_KEY = re.compile(r"[\x21-\x7e]{1,128}")
_REFERENCE = re.compile(r"[\x20-\x7e]{0,64}")
_NUMBER = re.compile(r"[0-9]{5,21}")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_EXTENSION = re.compile(r"[0-9]*")
# The fields of a request that make it the same request.
_HASHED = ("to", "text", "account", "extension", "priority", "schedule_at", "expire_at")

Outcome = Literal["created", "duplicate", "rejected"]


@dataclass(frozen=True, slots=True)
class Request:
    """What a business system asks for. Times are unix seconds, 0: none."""

    biz: int
    to: Sequence[str]
    text: str
    account: str = ""
    extension: str = ""
    priority: int = 0
    schedule_at: float = 0.0
    expire_at: float = 0.0
    reference: str = ""
    idempotency_key: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`ids` are in the order of `to`. `code` is `invalid`, `conflict` or `limit` when rejected."""

    outcome: Outcome
    ids: Sequence[str] = field(default=())
    code: str = ""
    reason: str = ""
    field: str = ""


class Intake:
    """Checks against what the directory knows; one a process."""

    def __init__(self, directory: Directory | None = None) -> None:
        self.directory = directory or Directory()
        self.router = Router(self.directory)

    def send_many(self, requests: Sequence[Request]) -> list[Verdict]:
        """Store requests with one script. Raises RedisError: then nothing is known, repeat with
        the same keys."""
        self.directory.refresh()
        verdicts: list[Verdict | None] = list(_repeats(requests))
        calls: dict[int, store.Call] = {}
        for place, request in enumerate(requests):
            if verdicts[place] is not None:
                continue
            try:
                calls[place] = self._call(request)
            except InvalidInput as error:
                code = "limit" if isinstance(error, LimitReached) else "invalid"
                verdicts[place] = Verdict("rejected", (), code, str(error), error.field)
        firsts = store.accept(list(calls.values()), settings.SMS_IDEMPOTENCY_SECONDS)
        for (place, call), first in zip(calls.items(), firsts, strict=True):
            verdicts[place] = _judged(first, call.payload_hash) or _created(call)
        return [verdict for verdict in verdicts if verdict is not None]

    def _call(self, request: Request) -> store.Call:
        account = self._account(request)
        numbers = _numbers(request.to, account)
        parts = _check(request, account)
        routes = [self.router.route(account, number) for number in numbers]
        spend(account, len(numbers))
        bucket = ids.bucket(request.biz, request.idempotency_key or None)
        made = ids.reserve(len(numbers)).ids([bucket] * len(numbers))
        reference = _udh_reference(made[0]) if parts > 1 else 0
        messages = [
            _message(request, account, str(message_id), number, route, reference)
            for message_id, number, route in zip(made, numbers, routes, strict=True)
        ]
        return store.Call(messages, request.biz, request.idempotency_key, _hash(request))

    def _account(self, request: Request) -> Account:
        account = self.directory.account(request.biz, request.account)
        if account is None and request.account:
            raise InvalidInput(f"there is no account {request.account!r}", "account")
        if account is None:
            raise InvalidInput("name an account: there is no default one", "account")
        return account


@lru_cache(maxsize=1)
def intake() -> Intake:
    """The process' own."""
    return Intake()


def _numbers(given: Sequence[str], account: Account) -> list[str]:
    """As SGIP writes them; each once, for a Submit may name a number only once."""
    if not 1 <= len(given) <= account.row.recipients_limit:
        raise InvalidInput(f"name 1 to {account.row.recipients_limit} recipients", "to")
    numbers = []
    for number in given:
        normal = sgip.international(number) if isinstance(number, str) else ""
        if not _NUMBER.fullmatch(normal):
            raise InvalidInput(f"{number!r} is no telephone number", "to")
        numbers.append(normal)
    if len(set(numbers)) < len(numbers):
        raise InvalidInput("a recipient is named twice", "to")
    return numbers


def _check(request: Request, account: Account) -> int:
    """Raises InvalidInput naming the field; how many parts the text has."""
    if not 1 <= len(request.text) <= MAX_TEXT:
        raise InvalidInput(f"write 1 to {MAX_TEXT} characters", "text")
    if _CONTROL.search(request.text):
        raise InvalidInput("it holds a control character", "text")
    try:
        parts = sgip.split(request.text, 0, sgip.SplitOptions(signature=account.row.signature))
    except sgip.TextError as error:
        raise InvalidInput(str(error), "text") from None
    digits = account.row.extension_digits
    if not _EXTENSION.fullmatch(request.extension) or len(request.extension) > digits:
        raise InvalidInput(f"use at most {digits} digits", "extension")
    if len(account.row.sp_number + request.extension) > 21:
        raise InvalidInput("with it the SP number has more than 21 digits", "extension")
    if not 0 <= request.priority <= 9:
        raise InvalidInput("use 0 to 9", "priority")
    if not _REFERENCE.fullmatch(request.reference):
        raise InvalidInput(f"use at most {MAX_REFERENCE} ASCII characters", "reference")
    if request.idempotency_key and not _KEY.fullmatch(request.idempotency_key):
        raise InvalidInput("use 1 to 128 visible ASCII characters", "idempotency_key")
    _check_times(request)
    return len(parts.contents)


def _check_times(request: Request) -> None:
    now = time.time()
    longest = settings.SMS_SCHEDULE_DAYS * 86400
    if request.schedule_at and request.schedule_at > now + longest:
        raise InvalidInput(f"at most {settings.SMS_SCHEDULE_DAYS} days ahead", "schedule_at")
    if request.expire_at and request.expire_at <= max(now, request.schedule_at):
        raise InvalidInput("it must be in the future, and after schedule_at", "expire_at")


def _udh_reference(first_id: int) -> int:
    """What joins the parts of a long text on the handset: the same for the whole call."""
    return 1 + zlib.crc32(str(first_id).encode()) % 255


def _message(
    request: Request,
    account: Account,
    message_id: str,
    number: str,
    route: list[int],
    udh_reference: int,
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
        udh_reference=udh_reference,
        schedule_at=request.schedule_at,
        expire_at=request.expire_at,
        key=request.idempotency_key,
        reference=request.reference,
    )


def _hash(request: Request) -> str:
    if not request.idempotency_key:
        return ""
    return hashlib.sha256(
        msgspec.json.encode([getattr(request, name) for name in _HASHED])
    ).hexdigest()


def _repeats(requests: Sequence[Request]) -> list[Verdict | None]:
    """The verdicts of those whose key is known. They come before every check: what was accepted
    once stays accepted, though its account is switched off or has spent its limit since."""
    names = [keys.idempotency(r.biz, r.idempotency_key) for r in requests if r.idempotency_key]
    rows = iter(sms_redis().mget(names) if names else ())
    verdicts: list[Verdict | None] = []
    for request in requests:
        row = next(rows) if request.idempotency_key else None
        first = msgspec.json.decode(row, type=store.First) if row else None
        verdicts.append(_judged(first, _hash(request)) if first else None)
    return verdicts


def _created(call: store.Call) -> Verdict:
    return Verdict("created", [message.id for message in call.messages])


def _judged(first: store.First | None, payload_hash: str) -> Verdict | None:
    """What a request is that comes after the first one with its key; None: it is the first."""
    if first is None:
        return None
    if first.hash == payload_hash:
        return Verdict("duplicate", first.ids)
    return Verdict(
        "rejected", (), "conflict",
        "this idempotency key was used for another message; use a new key for a new message",
        "idempotency_key",
    )  # fmt: skip
