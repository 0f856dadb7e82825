"""A line of the exported audit log: JSON, signed with Ed25519 (RFC 8032), chained by SHA-256.

    {"audit":1,"line":17,"at":"…","actor":"…","action":"…","target":"…","detail":{…},
     "previous":"…","key":"…","signature":"…"}

`previous` is the hash of the whole line before (64 zeros for the first), `key` names the public
key. The signature is over the bytes before `,"signature":`. A line is ASCII, without line breaks,
and at most MAX_BYTES long; a longer `detail` is replaced by its hash.
"""

import base64
import hashlib
import json
from binascii import Error as NotBase64
from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from msgplatform.models import AuditLog

BEGINNING = b'{"audit":1,'
FIRST_PREVIOUS = "0" * 64
MAX_BYTES = 32 * 1024
_SIGNATURE = b',"signature":"'
_END = b'"}'


class NotALine(ValueError):
    """The bytes are no whole line; the text has the reason."""


class Signer:
    """Signs lines with one private key: 32 bytes in URL-safe base64, as settings hold it.

    Raises ValueError for a text that is not a key.
    """

    def __init__(self, key: str) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(base64.urlsafe_b64decode(key))
        self.public_key = self._key.public_key()
        self.key_name = key_name(self.public_key)

    def line(self, number: int, entry: AuditLog, previous: str) -> bytes:
        """The line with this number for an entry; `previous` is the hash of the line before."""
        line = self._sign(number, entry, entry.detail, previous)
        if len(line) <= MAX_BYTES:
            return line
        detail = json.dumps(entry.detail, sort_keys=True, separators=(",", ":")).encode()
        left_out = {"left_out": len(detail), "sha256": hashlib.sha256(detail).hexdigest()}
        return self._sign(number, entry, left_out, previous)

    def _sign(self, number: int, entry: AuditLog, detail: Any, previous: str) -> bytes:
        content = {
            "audit": 1,
            "line": number,
            "at": entry.at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "actor": entry.actor,
            "action": entry.action,
            "target": entry.target,
            "detail": detail,
            "previous": previous,
            "key": self.key_name,
        }
        signed_bytes = json.dumps(content, separators=(",", ":")).encode()[:-1]
        return signed_bytes + _SIGNATURE + base64.b64encode(self._key.sign(signed_bytes)) + _END


class Line(msgspec.Struct, frozen=True):
    """The facts in a verified line about its place in the chain."""

    number: int
    previous: str
    hash: str


def hash_of(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def key_name(key: Ed25519PublicKey) -> str:
    """The first 16 hexadecimal digits of the hash of the raw public key."""
    return hashlib.sha256(key.public_bytes(Encoding.Raw, PublicFormat.Raw)).hexdigest()[:16]


def public_text(key: Ed25519PublicKey) -> str:
    """A public key in the form for people: 32 bytes in URL-safe base64."""
    return base64.urlsafe_b64encode(key.public_bytes(Encoding.Raw, PublicFormat.Raw)).decode()


def public_keys(texts: Sequence[str]) -> dict[str, Ed25519PublicKey]:
    """Public keys by name. Raises ValueError for a text that is no key."""
    keys = [Ed25519PublicKey.from_public_bytes(base64.urlsafe_b64decode(text)) for text in texts]
    return {key_name(key): key for key in keys}


def claimed_number(line: bytes) -> int | None:
    """The number that a line claims, true or not; None without one."""
    try:
        number = json.loads(line)["line"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return number if isinstance(number, int) and number > 0 else None


def verified(line: bytes, keys: Mapping[str, Ed25519PublicKey]) -> Line:
    """The line, if one of the keys has signed its bytes. Raises NotALine."""
    signed_bytes, mark, signature = line.rpartition(_SIGNATURE)
    if not mark or not signature.endswith(_END):
        raise NotALine("is cut off")
    try:
        content = json.loads(line)
        name, number, previous = content["key"], content["line"], content["previous"]
        key = keys.get(name)
        raw_signature = base64.b64decode(signature.removesuffix(_END), validate=True)
    except (ValueError, KeyError, TypeError, NotBase64, RecursionError):
        raise NotALine("was changed: it is no JSON of this form") from None
    if key is None:
        raise NotALine(f"is signed with the key {name!r}, which is not among the keys here")
    try:
        key.verify(raw_signature, signed_bytes)
    except InvalidSignature:
        raise NotALine("was changed: its signature is not of this text") from None
    return Line(number, previous, hash_of(line))
