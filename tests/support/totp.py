"""Codes of an authenticator app, by RFC 6238 with the code of the platform closed."""

import base64
import hashlib
import hmac
import time


def code(secret: str, at: float | None = None) -> str:
    """The six digits of this secret (base32) at this time, in seconds since 1970."""
    counter = int((time.time() if at is None else at) // 30).to_bytes(8, "big")
    digest = hmac.new(base64.b32decode(secret), counter, hashlib.sha1).digest()
    offset = digest[-1] & 15
    number = int.from_bytes(digest[offset : offset + 4], "big") & 0x7FFF_FFFF
    return f"{number % 1_000_000:06d}"
