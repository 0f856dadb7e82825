"""A request to send short messages, the checks that it must pass, and the gateways it may take.

The checks: account, recipients, text, times, the account's limit of a day.
"""

import math
import re
import time
from collections.abc import Sequence
from datetime import datetime, time as day_time, timedelta

import msgspec
from django.conf import settings
from django.utils import timezone
from django.utils.translation import gettext_noop as _

from gateway import presence, sgip
from gateway.directory import Account, Directory, Gateway
from gateway.lifecycle import keys
from gateway.lifecycle.store import Allowance
from gateway.models.settings import MAX_NUMBER
from msgplatform.core.characters import phone_number
from msgplatform.core.daemons.timer import Every
from msgplatform.core.errors import InvalidInput
from msgplatform.core.intake.idempotency import check_key
from msgplatform.core.lazy_text import lazy_message
from msgplatform.core.tracing.context import Start

MAX_TEXT = 2000  # characters: more than anybody reads
MAX_REFERENCE = 64
# The maximum validity that GSM counts in days. SGIP writes two digits of a year: a time far ahead
# would be in another century.
MAX_EXPIRE_DAYS = 30
_REFERENCE = re.compile(rf"[\x20-\x7e]{{0,{MAX_REFERENCE}}}")
_NUMBER = re.compile(rf"[0-9]{{5,{MAX_NUMBER}}}")  # short codes have five digits
# Control characters except tab, line feed and carriage return.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_EXTENSION = re.compile(r"[0-9]*")
_LINK_LOOK_SECONDS = 1.0  # processes report changes of their links at once


class Request(msgspec.Struct, frozen=True):
    """One text for one or more recipients. Times are unix seconds, 0: none.

    `gateway` is the id of the only gateway that may be used; 0: any that fits. `trace` is None
    unless the request is traced.
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
    trace: Start | None = None


class CheckedRequest(msgspec.Struct, frozen=True):
    """A request that passed all checks; `numbers` and `routes` have an entry for each recipient,
    `parts` is how many short messages its text needs."""

    request: Request
    account: Account
    numbers: list[str]
    routes: list[list[int]]
    parts: int
    allowance: Allowance | None


class Router:
    """The gateways for messages. It reads which links are up at most once a second."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._connected_ids: frozenset[int] = frozenset()
        self._next = Every(_LINK_LOOK_SECONDS)

    def route(self, account: Account, user_number: str) -> list[int]:
        """Gateway ids in the order in which they are tried. Raises InvalidInput."""
        fitting: list[tuple[Gateway, int]] = []  # (gateway, length of its longest prefix that fits)
        for gateway in self._directory.known.gateways.values():
            if account.gateway_ids and gateway.id not in account.gateway_ids:
                continue
            lengths = [len(p) for p in gateway.prefixes if user_number.startswith(p)]
            if lengths or not gateway.prefixes:  # a gateway without prefixes takes all
                fitting.append((gateway, max(lengths, default=0)))
        if not fitting:
            words = _("no gateway takes %(number)s for this account")
            raise InvalidInput(lazy_message(words, number=user_number), "to")
        if self._next.take():
            self._connected_ids = presence.connected_gateways(presence.live())
        connected_ids = self._connected_ids  # another thread may replace the attribute
        # First by a link that is up, then by the longest prefix, then by priority. Gateways that
        # are down are in the list too, because a sender moves their messages to the next gateway.
        by_rank = [
            (gateway.id not in connected_ids, -length, -gateway.row.priority, gateway.id)
            for gateway, length in fitting
        ]
        return [id for *_, id in sorted(by_rank)]


def check(request: Request, directory: Directory, router: Router) -> CheckedRequest:
    """The request with its account, numbers and routes. Raises InvalidInput naming the field."""
    account = directory.account(request.biz, request.account)
    if account is None and directory.refresh_after_miss():  # it may have been made just now
        account = directory.account(request.biz, request.account)
    if account is None:
        if request.account:
            words = lazy_message("there is no account %(name)s", name=repr(request.account))
        elif any(row.biz_id == request.biz for row in directory.known.accounts.values()):
            words = lazy_message("name an account: there is no default one")
        else:
            words = lazy_message(
                "this system has no SMS account that is switched on: ask the people who run the "
                "platform for one"
            )
        raise InvalidInput(words, "account")
    numbers = _numbers(request.to, account)
    parts = _check_fields(request, account)
    routes = [router.route(account, number) for number in numbers]
    if request.gateway:
        if any(request.gateway not in route for route in routes):
            words = lazy_message("this gateway is not for this account and number")
            raise InvalidInput(words, "gateway")
        routes = [[request.gateway] for _route in routes]
    # Today's counter of messages (in the platform's time zone) and its limit.
    limit, allowance = account.row.daily_limit, None
    if limit:
        if len(numbers) > limit:
            words = lazy_message("the account may send to %(limit)d recipients a day", limit=limit)
            raise InvalidInput(words, "to")
        today = _now().date().isoformat()
        allowance = Allowance(keys.spent(account.id, today), limit)
    return CheckedRequest(request, account, numbers, routes, parts, allowance)


def _numbers(recipients: Sequence[str], account: Account) -> list[str]:
    """The recipients' numbers as SGIP writes them. Raises InvalidInput.

    No number may come twice, because a Submit may name it only once.
    """
    limit = account.row.recipients_limit
    if not 1 <= len(recipients) <= limit:
        raise InvalidInput(lazy_message("name 1 to %(most)d recipients", most=limit), "to")
    numbers = []
    for recipient in recipients:
        text = phone_number(recipient) if isinstance(recipient, str) else ""
        number = sgip.international(text)
        if not _NUMBER.fullmatch(number):
            words = lazy_message("%(number)s is not a telephone number", number=repr(recipient))
            raise InvalidInput(words, "to")
        numbers.append(number)
    if len(set(numbers)) < len(numbers):
        raise InvalidInput(lazy_message("a recipient is named twice"), "to")
    return numbers


def _check_fields(request: Request, account: Account) -> int:
    """Check everything but the recipients. Returns the number of the text's parts with the ASCII
    limit that needs more of them. Raises InvalidInput naming the field."""
    if not 1 <= len(request.text) <= MAX_TEXT:
        raise InvalidInput(lazy_message("write 1 to %(most)d characters", most=MAX_TEXT), "text")
    if _CONTROL.search(request.text):
        words = lazy_message("use no control characters but tabs and line breaks")
        raise InvalidInput(words, "text")
    text = request.text
    try:
        parts = len(
            sgip.split(text, 0, sgip.SplitOptions(signature=account.row.signature)).contents
        )
        if parts == 1 and text.isascii():  # 140 brackets are more than 160 septets
            options = sgip.SplitOptions(signature=account.row.signature, packed_ascii=True)
            parts = len(sgip.split(text, 0, options).contents)
    except sgip.TextError as error:
        raise InvalidInput(str(error), "text") from None
    digits = account.row.extension_digits
    if not _EXTENSION.fullmatch(request.extension) or len(request.extension) > digits:
        words = lazy_message("use digits: this account takes at most %(most)d of them", most=digits)
        raise InvalidInput(words, "extension")
    if len(account.row.sp_number + request.extension) > MAX_NUMBER:
        words = lazy_message("use at most %(most)d digits with the SP number", most=MAX_NUMBER)
        raise InvalidInput(words, "extension")
    if not 0 <= request.priority <= 9:
        raise InvalidInput(lazy_message("use 0 to 9"), "priority")
    if not _REFERENCE.fullmatch(request.reference):
        words = lazy_message("use at most %(most)d printable ASCII characters", most=MAX_REFERENCE)
        raise InvalidInput(words, "reference")
    if request.idempotency_key:
        check_key(request.idempotency_key)
    # A `schedule_at` in the past is no error: the message is sent at once.
    now = time.time()
    schedule_seconds = settings.SMS_SCHEDULE_DAYS * 86400
    if request.schedule_at and request.schedule_at > now + schedule_seconds:
        words = lazy_message(
            "use a time at most %(days)d days ahead", days=settings.SMS_SCHEDULE_DAYS
        )
        raise InvalidInput(words, "schedule_at")
    begin = max(now, request.schedule_at)
    if request.expire_at and request.expire_at <= begin:
        words = lazy_message("use a time in the future, and after schedule_at")
        raise InvalidInput(words, "expire_at")
    if request.expire_at > begin + MAX_EXPIRE_DAYS * 86400:
        words = lazy_message(
            "use a time at most %(days)d days from now, or from schedule_at",
            days=MAX_EXPIRE_DAYS,
        )
        raise InvalidInput(words, "expire_at")
    return parts


# -- the limit of messages a day: the script that stores messages counts them, new calls only --
class LimitReached(InvalidInput):
    """The day has no room for the messages; `wait` are the seconds until tomorrow."""

    code = "limit"

    def __init__(self, limit: int, count: int) -> None:
        words = _("the account's limit of %(limit)d messages a day has no room for another one")
        if count > 1:
            words = _(
                "the account's limit of %(limit)d messages a day has no room for %(more)d more"
            )
        super().__init__(lazy_message(words, limit=limit, more=count), "account")
        self.wait = seconds_to_tomorrow(_now())


def seconds_to_tomorrow(now: datetime) -> int:
    """Until midnight in the zone of `now`, rounded up."""
    midnight = datetime.combine(now.date() + timedelta(days=1), day_time.min, now.tzinfo)
    # Times of one zone are subtracted by the wall clock, also on the day of a clock change.
    return math.ceil(midnight.timestamp() - now.timestamp())


def _now() -> datetime:
    # In the console another time zone may be active.
    return timezone.localtime(timezone=timezone.get_default_timezone())
