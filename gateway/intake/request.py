"""What a business system asks for, and what may be wrong with it."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from django.conf import settings

from gateway import sgip
from gateway.directory import Account
from msgplatform.core.data.idempotency import check_key
from msgplatform.core.errors import InvalidInput

MAX_TEXT = 2000  # characters: more than 255 parts hold, and more than anybody reads
MAX_REFERENCE = 64
_REFERENCE = re.compile(r"[\x20-\x7e]{0,64}")
_NUMBER = re.compile(r"[0-9]{5,21}")  # from a short code to what a field of SGIP holds
# All but tab, line feed and carriage return.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_EXTENSION = re.compile(r"[0-9]*")


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


def numbers(given: Sequence[str], account: Account) -> list[str]:
    """The recipients as SGIP writes them. Raises InvalidInput, also for one that is named twice: a
    Submit may name a number only once."""
    if not 1 <= len(given) <= account.row.recipients_limit:
        raise InvalidInput(f"name 1 to {account.row.recipients_limit} recipients", "to")
    found = []
    for number in given:
        normal = sgip.international(number) if isinstance(number, str) else ""
        if not _NUMBER.fullmatch(normal):
            raise InvalidInput(f"{number!r} is no telephone number", "to")
        found.append(normal)
    if len(set(found)) < len(found):
        raise InvalidInput("a recipient is named twice", "to")
    return found


def check(request: Request, account: Account) -> int:
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
    if request.idempotency_key:
        check_key(request.idempotency_key)
    _check_times(request)
    return len(parts.contents)


def _check_times(request: Request) -> None:
    now = time.time()
    longest = settings.SMS_SCHEDULE_DAYS * 86400
    if request.schedule_at and request.schedule_at > now + longest:
        raise InvalidInput(f"at most {settings.SMS_SCHEDULE_DAYS} days ahead", "schedule_at")
    if request.expire_at and request.expire_at <= max(now, request.schedule_at):
        raise InvalidInput("it must be in the future, and after schedule_at", "expire_at")
