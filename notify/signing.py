"""Standard Webhooks 1.0.0: sign and verify on exact bytes."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Iterable

PREFIX = "whsec_"
# The specification asks for 24 to 64 random bytes.
_SECRET_BYTES = 32


def new_secret() -> str:
    """A fresh symmetric secret: `whsec_` + base64."""
    return PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def decode_secret(secret: str) -> bytes:
    """The key's bytes. Raises ValueError for anything that is not `whsec_` + base64."""
    if not secret.startswith(PREFIX):
        raise ValueError(f"a signing secret starts with {PREFIX}")
    try:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error:
        raise ValueError("a signing secret is base64 after its prefix") from None


def sign(keys: Iterable[bytes], message_id: str, timestamp: int, body: bytes) -> str:
    """The `webhook-signature` header: one `v1` entry a key, so that keys can be rotated."""
    content = b"%s.%d.%s" % (message_id.encode(), timestamp, body)
    return " ".join(
        "v1," + base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode() for key in keys
    )


def headers(
    keys: Iterable[bytes], message_id: str, timestamp: int, body: bytes, prefix: str = "webhook"
) -> list[tuple[str, str]]:
    """The three headers of one attempt; `timestamp` is the attempt's, in unix seconds."""
    return [
        (f"{prefix}-id", message_id),
        (f"{prefix}-timestamp", str(timestamp)),
        (f"{prefix}-signature", sign(keys, message_id, timestamp, body)),
    ]
