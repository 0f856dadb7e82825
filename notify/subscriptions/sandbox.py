"""The sandbox as a consumer: the URL is the same on every platform, and each platform delivers to
its own web server instead.

The path has a token made from the consumer's signing secret. So only the platform knows the token,
and the database does not store it.
"""

import hashlib
import hmac
from collections.abc import Iterable

from django.conf import settings
from django.utils.translation import gettext_noop as _

from msgplatform.core.errors import InvalidInput
from msgplatform.core.http import destinations

# A name that no resolver ever knows (RFC 6761, 6.4).
HOST = "sandbox.invalid"
URL = f"https://{HOST}/"
PATH = "/sandbox/notify/"
OFF = _("The sandbox is switched off on this platform: SANDBOX is no.")
_PURPOSE = b"msgplatform sandbox %d"
_TOKEN_LENGTH = 32  # hexadecimal digits


def is_sandbox(url: str) -> bool:
    """True if a consumer with this URL is the platform's own sandbox."""
    try:
        return destinations.parse(url).host == HOST
    except InvalidInput:
        return False


def address(subscription: int, key: bytes) -> tuple[str, str]:
    """The URL for a sandbox's deliveries, and the host whose private addresses the guard permits.
    '': no such host, because the name comes from PUBLIC_URL and may resolve to any address."""
    url = f"{settings.SANDBOX_URL}{PATH}{subscription}/{_token(subscription, key)}"
    destination = destinations.parse(url)
    return url, destination.host if destination.address or settings.SANDBOX_URL_SET else ""


def is_token(token: str, subscription: int, keys: Iterable[bytes]) -> bool:
    """True if a sender has made this token with one of the consumer's keys."""
    # Bytes, because `compare_digest` refuses text that is not ASCII.
    sent_token = token.encode()
    return any(hmac.compare_digest(sent_token, _token(subscription, key).encode()) for key in keys)


def _token(subscription: int, key: bytes) -> str:
    digest = hmac.digest(key, _PURPOSE % subscription, hashlib.sha256)
    return digest.hex()[:_TOKEN_LENGTH]
