"""The values that a consumer or a subscription may have, checked in forms and by the API; its log
policy; and the parts of a consumer that people may see.

A validator has the name of its column, by which migrations name it too.
"""

import ipaddress
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db.models import TextChoices
from django.utils.translation import gettext as _, gettext_lazy, pgettext_lazy

from msgplatform.core.archive.description import DAY
from msgplatform.core.errors import InvalidInput
from msgplatform.core.http import destinations
from msgplatform.core.lazy_text import translate_text
from notify.subscriptions import matching, sandbox

MAX_PAYLOAD_BYTES = 256 * 1024
# Replaces a stored value that people may not see. No header's value can have these characters.
MASK = "•••"
MAX_ATTEMPTS = 50
MAX_PATTERNS = 100
MAX_HEADERS = 20
# RFC 9110 §5.6.2 and §5.5, without bytes that consumers and proxies treat differently.
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_HEADER_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e]{0,998}[\x21-\x7e])?")
_PREFIX = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
# Headers that the platform sets, or its HTTP engine for each connection.
_OWN_HEADERS = frozenset({
    "webhook-id", "webhook-timestamp", "webhook-signature", "content-type", "content-length",
    "content-encoding", "host", "connection", "transfer-encoding", "expect", "upgrade", "te",
    "trailer", "keep-alive", "traceparent", "tracestate", "proxy-authorization",
    "proxy-connection", "accept-encoding",
})  # fmt: skip
CLOUD_EVENT_PREFIX = "ce-"  # of the headers of a CloudEvent in binary mode
CHANNEL = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
MAX_DELAY_SECONDS = 7 * 86400
MIN_TIMEOUT = 0.5  # seconds
# Seconds between the end of a request and the end of its lease. The clocks of database and sender
# may differ by this time without a message being sent twice.
LEASE_MARGIN_SECONDS = 2.0
# Seconds that a delivery waits for a listener: over a weekend.
UNFETCHED_SECONDS = 72 * 3600.0


def url(value: str) -> None:
    """Check that the sender can call the URL. Names without a dot (internal networks) are valid."""
    try:
        destinations.parse(value)
    except InvalidInput as error:
        raise ValidationError(translate_text(error.args[0])) from None
    if sandbox.is_sandbox(value) and not settings.SANDBOX:
        raise ValidationError(_(sandbox.OFF))


def url_of(value: str, is_listened: bool) -> None:
    """Check that a consumer with pushed messages has a URL, and a listened consumer has none."""
    if is_listened and value:
        raise ValidationError({"url": _("A listener fetches its messages: leave the URL empty.")})
    if not is_listened and not value:
        text = _("Its messages are pushed: write the URL, or let a listener fetch them.")
        raise ValidationError({"url": text})


def schedule(value: Any) -> None:
    if not isinstance(value, list) or len(value) > MAX_ATTEMPTS:
        text = _("Write a list of at most %d numbers such as [5, 300, 1800].")
        raise ValidationError(text % MAX_ATTEMPTS)
    for seconds in value:
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not is_number or not 0 <= seconds <= MAX_DELAY_SECONDS:
            text = _("%(value)r is not a valid delay: use 0 to %(most)d seconds (7 d).")
            raise ValidationError(text % {"value": seconds, "most": MAX_DELAY_SECONDS})


def headers(value: Any) -> None:
    """Check names and values of further request headers; the platform's own names are refused."""
    if not isinstance(value, dict) or len(value) > MAX_HEADERS:
        raise ValidationError(
            _('Write at most %d headers such as {"X-Api-Key": "…"}.') % MAX_HEADERS
        )
    for name, content in value.items():
        is_own = name.lower() in _OWN_HEADERS or name.lower().startswith(CLOUD_EVENT_PREFIX)
        if is_own or not _HEADER_NAME.fullmatch(name):
            text = _("%r cannot be set as a header: the platform sets it, or it is no header name.")
            raise ValidationError(text % name)
        if not isinstance(content, str) or not _HEADER_VALUE.fullmatch(content):
            text = _("The value of %s must be 1 to 1000 visible ASCII characters.")
            raise ValidationError(text % name)


def header_prefix(value: str) -> None:
    """Check the part before -id, -timestamp and -signature."""
    if not _PREFIX.fullmatch(value):
        raise ValidationError(_("Use lower-case letters, digits and -, such as webhook."))


def own_headers(prefix: str) -> list[str]:
    """The headers that the sender adds to each request."""
    names = ("id", "timestamp", "signature", "idempotency-key")
    return [f"{prefix}-{name}" for name in names]


def headers_beside(prefix: str, value: Any) -> None:
    """Refuse headers with the names that the sender adds: a request would have both."""
    own_names = own_headers(prefix)
    for name in value if isinstance(value, dict) else ():
        if name.lower() in own_names:
            raise ValidationError({"headers": _("%r is a header that the platform sets.") % name})


def networks(value: Any) -> None:
    if not isinstance(value, list) or len(value) > MAX_PATTERNS:
        raise ValidationError(_('Write a list of networks such as ["10.2.0.0/16"].'))
    for item in value:
        try:
            ipaddress.ip_network(item if isinstance(item, str) else "")
        except ValueError:
            raise ValidationError(
                _("%r is not a network such as 10.2.0.0/16 or 2001:db8::/32.") % item
            ) from None


def event_type(value: str) -> None:
    """Check one event type, without a wildcard."""
    if not matching.EVENT_TYPE.fullmatch(value):
        raise ValidationError(
            _("Use letters, digits and _ - : / in parts joined by dots, such as order.paid.")
        )


def event_types(value: Any) -> None:
    """Check a list of patterns; a wildcard is `*`."""
    fault = _("%(item)r is not a pattern: use up to 128 letters, digits and _ - : / . *")
    _list_of(value, matching.PATTERN, _('Write a list of patterns such as ["order.*"].'), fault)


def channels(value: Any) -> None:
    fault = _("%(item)r is not a channel: use up to 64 letters, digits and _ . : -")
    _list_of(value, CHANNEL, _('Write a list of channel names such as ["eu"].'), fault)


def _list_of(value: Any, form: re.Pattern[str], message: str, fault: str) -> None:
    if not isinstance(value, list) or len(value) > MAX_PATTERNS:
        raise ValidationError(message)
    for item in value:
        if not isinstance(item, str) or not form.fullmatch(item):
            raise ValidationError(fault % {"item": item})


def failing_alert_after() -> timedelta | None:
    """The time that a subscription fails before there is an alert; None: never."""
    minutes = settings.NOTIFY_FAILING_MINUTES
    return timedelta(minutes=minutes) if minutes else None


def breaker_keep(waits: Sequence[float]) -> float:
    """Seconds that a delivery waits behind an open breaker until it is exhausted."""
    hours: float = settings.NOTIFY_BREAKER_KEEP_HOURS
    return max(sum(waits), hours * 3600)


def longest_timeout() -> float:
    """Seconds: half of the lease, at most a minute. The other half is for waiting in the queue."""
    lease: float = settings.NOTIFY_LEASE_SECONDS
    return min(60.0, lease / 2 - LEASE_MARGIN_SECONDS / 2)


def timeout(value: float) -> None:
    """Check that a request ends before its lease. Otherwise the message would be sent twice."""
    max_seconds = longest_timeout()
    if not MIN_TIMEOUT <= value <= max_seconds:
        raise ValidationError(
            _("Use 0.5 to %(most)g seconds (a request must end before its lease).")
            % {"most": max_seconds}
        )


# -- the log policy: the attempts whose answer is kept, and for how long ---------------------------
MAX_LOG_DAYS = 3650
# The ids of attempts are given out before their transaction commits: answers that are younger may
# appear behind the cursor of the removal.
_MIN_LOG_SECONDS = 3600.0


class KeptAnswers(TextChoices):
    """An answer is its headers and its body, as far as the log of attempts holds them. Status, time
    and error class of an attempt always stay."""

    ALL = "all", pgettext_lazy("answers", "of all attempts")
    FAILURES = "failures", gettext_lazy("of failed attempts only")
    NONE = "none", pgettext_lazy("answers", "none")


def is_answer_kept(policy: str, is_delivered: bool) -> bool:
    """True if the answer to an attempt is kept. A policy of a later version keeps none."""
    return policy == KeptAnswers.ALL or (policy == KeptAnswers.FAILURES and not is_delivered)


def answer_seconds(policy: str, days: int | None) -> float | None:
    """Seconds until answers are removed; None: answers are kept as long as their message."""
    if policy == KeptAnswers.NONE:
        return _MIN_LOG_SECONDS
    return None if days is None else days * DAY


# -- what people may see -------------------------------------------------------------------------
def shown_url(address: str) -> str:
    """The URL without its possible secrets: the query's text, user and password."""
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, MASK if parts.query else "", ""))
