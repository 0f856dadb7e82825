"""Standard Webhooks 1.0.0: sign and verify on exact bytes."""

import base64
import binascii
import hashlib
import secrets
from collections.abc import Callable, Iterable, Sequence

PREFIX = "whsec_"
# The specification asks for 24 to 64 random bytes.
_SECRET_BYTES = 32
# HMAC-SHA256 (RFC 2104): the block size to which a key is padded, and the tables that translate the
# key's bytes for the inner and the outer hash.
_BLOCK = 64
_INNER = bytes(byte ^ 0x36 for byte in range(256))
_OUTER = bytes(byte ^ 0x5C for byte in range(256))


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


class Signer:
    """Signs many messages with one key. HMAC-SHA256 starts from two stored hash states of the
    padded key, which costs half of `hmac.digest`."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, key: bytes) -> None:
        if len(key) > _BLOCK:
            key = hashlib.sha256(key).digest()
        block = key.ljust(_BLOCK, b"\0")
        self._inner = hashlib.sha256(block.translate(_INNER))
        self._outer = hashlib.sha256(block.translate(_OUTER))

    def sign(self, content: bytes) -> str:
        """The `v1` entry for `<message id>.<timestamp>.<body>`."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(content)
        outer.update(inner.digest())
        return "v1," + binascii.b2a_base64(outer.digest(), newline=False).decode()


def signer(keys: Sequence[bytes]) -> Callable[[bytes], str]:
    """A function that makes the `webhook-signature` header of `<message id>.<timestamp>.<body>`,
    with a `v1` entry for each key, so that keys can be rotated."""
    signers = [Signer(key).sign for key in keys]
    if len(signers) == 1:
        return signers[0]
    return lambda content: " ".join([sign(content) for sign in signers])


def sign(keys: Iterable[bytes], message_id: str, timestamp: int, body: bytes) -> str:
    """The `webhook-signature` header of one message."""
    content = b"%s.%d.%s" % (message_id.encode(), timestamp, body)
    return signer(list(keys))(content)
