"""A request to send short messages, and the checks that it must pass."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from django.conf import settings
from django.utils.translation import gettext_noop as _

from gateway import sgip
from gateway.directory import Account
from msgplatform.core.errors import InvalidInput
from msgplatform.core.intake.idempotency import check_key
from msgplatform.core.lazy_text import lazy_message

MAX_TEXT = 2000  # characters: more than anybody reads
MAX_REFERENCE = 64
_MAX_NUMBER = 21  # digits that a number has room for in SGIP
# The longest validity that GSM counts in days. SGIP writes two digits of a year: a time that is far
# ahead would be one of another century.
MAX_EXPIRE_DAYS = 30
_REFERENCE = re.compile(rf"[\x20-\x7e]{{0,{MAX_REFERENCE}}}")
_NUMBER = re.compile(rf"[0-9]{{5,{_MAX_NUMBER}}}")  # short codes have five digits
# Control characters but tab, line feed and carriage return.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_EXTENSION = re.compile(r"[0-9]*")


@dataclass(frozen=True, slots=True)
class Request:
    """One text for one or more recipients. Times are unix seconds, 0: none.

    `gateway` is the id of the only gateway that may be used; 0: whichever fits.
    """

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
    gateway: int = 0


def numbers(recipients: Sequence[str], account: Account) -> list[str]:
    """The recipients' numbers as SGIP writes them. Raises InvalidInput.

    No number may come twice, because a Submit may name it only once.
    """
    limit = account.row.recipients_limit
    if not 1 <= len(recipients) <= limit:
        raise InvalidInput(lazy_message(_("name 1 to %(most)d recipients"), most=limit), "to")
    numbers = []
    for number in recipients:
        normal = sgip.international(number) if isinstance(number, str) else ""
        if not _NUMBER.fullmatch(normal):
            words = lazy_message(_("%(number)s is not a telephone number"), number=repr(number))
            raise InvalidInput(words, "to")
        numbers.append(normal)
    if len(set(numbers)) < len(numbers):
        raise InvalidInput(lazy_message(_("a recipient is named twice")), "to")
    return numbers


def check(request: Request, account: Account) -> int:
    """Check everything but the recipients; returns how many parts the text has, over a gateway with
    the ASCII limit that needs more. Raises InvalidInput naming the field."""
    if not 1 <= len(request.text) <= MAX_TEXT:
        raise InvalidInput(lazy_message(_("write 1 to %(most)d characters"), most=MAX_TEXT), "text")
    if _CONTROL.search(request.text):
        words = lazy_message(_("use no control characters but tabs and line breaks"))
        raise InvalidInput(words, "text")
    parts = _parts(request.text, account.row.signature)
    digits = account.row.extension_digits
    if not _EXTENSION.fullmatch(request.extension) or len(request.extension) > digits:
        raise InvalidInput(lazy_message(_("use at most %(most)d digits"), most=digits), "extension")
    if len(account.row.sp_number + request.extension) > _MAX_NUMBER:
        words = lazy_message(_("use at most %(most)d digits with the SP number"), most=_MAX_NUMBER)
        raise InvalidInput(words, "extension")
    if not 0 <= request.priority <= 9:
        raise InvalidInput(lazy_message(_("use 0 to 9")), "priority")
    if not _REFERENCE.fullmatch(request.reference):
        words = lazy_message(
            _("use at most %(most)d printable ASCII characters"), most=MAX_REFERENCE
        )
        raise InvalidInput(words, "reference")
    if request.idempotency_key:
        check_key(request.idempotency_key)
    _check_times(request)
    return parts


def _parts(text: str, signature: str) -> int:
    try:
        count = len(sgip.split(text, 0, sgip.SplitOptions(signature=signature)).contents)
        if count == 1 and text.isascii():  # 140 brackets are more than 160 septets
            options = sgip.SplitOptions(signature=signature, packed_ascii=True)
            count = len(sgip.split(text, 0, options).contents)
    except sgip.TextError as error:
        raise InvalidInput(str(error), "text") from None
    return count


def _check_times(request: Request) -> None:
    # A `schedule_at` that is over is no error: the message is sent at once.
    now = time.time()
    schedule_seconds = settings.SMS_SCHEDULE_DAYS * 86400
    if request.schedule_at and request.schedule_at > now + schedule_seconds:
        words = lazy_message(
            _("use a time at most %(days)d days ahead"), days=settings.SMS_SCHEDULE_DAYS
        )
        raise InvalidInput(words, "schedule_at")
    begin = max(now, request.schedule_at)
    if request.expire_at and request.expire_at <= begin:
        words = lazy_message(_("use a time in the future, and after schedule_at"))
        raise InvalidInput(words, "expire_at")
    if request.expire_at > begin + MAX_EXPIRE_DAYS * 86400:
        words = lazy_message(
            _("use a time at most %(days)d days from now, or from schedule_at"),
            days=MAX_EXPIRE_DAYS,
        )
        raise InvalidInput(words, "expire_at")
