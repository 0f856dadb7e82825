"""A line of the exported audit log: JSON, signed with Ed25519 (RFC 8032), chained by SHA-256.

    {"audit":1,"line":17,"at":"…","actor":"…","action":"…","target":"…","detail":{…},
     "previous":"…","key":"…","signature":"…"}

`previous` is the hash of the whole line before (64 zeros for the first), `key` names the public
key. The signature is over the bytes before `,"signature":`. A line is ASCII, without line breaks,
and at most MAX_BYTES long; a longer `detail` is replaced by its hash.

A `Chain` verifies the lines of files: it finds lines that were changed, left out, moved or cut off.
An identical line that comes again is no fault: a killed exporter's lines are handed over again. A
fault is reported once, and the lines after it are still verified.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC
from itertools import groupby
from typing import Any, BinaryIO

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


def verify(line: bytes, keys: Mapping[str, Ed25519PublicKey]) -> Line:
    """The line, if one of the keys has signed its bytes. Raises NotALine."""
    signed_bytes, mark, signature = line.rpartition(_SIGNATURE)
    if not mark or not signature.endswith(_END):
        raise NotALine("is cut off")
    try:
        content = json.loads(line)
        name, number, previous = content["key"], content["line"], content["previous"]
        key = keys.get(name)
        raw_signature = base64.b64decode(signature.removesuffix(_END), validate=True)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise NotALine("was changed: it is no JSON of this form") from None
    if key is None:
        raise NotALine(f"is signed with the key {name!r}, which is not among the keys here")
    try:
        key.verify(raw_signature, signed_bytes)
    except InvalidSignature:
        raise NotALine("was changed: its signature is not of this text") from None
    return Line(number, previous, hash_of(line))


class Chain(msgspec.Struct):
    """The lines read so far. `is_mixed`: lines without the form's beginning come from other
    programs and are no fault."""

    keys: Mapping[str, Ed25519PublicKey]
    is_mixed: bool = False
    faults: list[str] = msgspec.field(default_factory=list)
    first: int = 0
    last: int = 0
    count: int = 0  # lines of the chain, without repeats
    repeat_count: int = 0
    # The first eight bytes of the hash of each line from `first` to `last`; 0: missing.
    _hashes: array[int] = msgspec.field(default_factory=lambda: array("Q"))
    _missing: set[int] = msgspec.field(default_factory=set)
    _last_hash: str = ""  # '' after a changed line, which no line can follow

    def read(self, file: str, texts: Iterable[bytes]) -> None:
        """Verify the lines of the next file, in the order of the chain."""
        position = 0
        try:
            for position, text in enumerate(texts, 1):
                if not text.strip():
                    continue
                place, start = f"{file}:{position}", text.find(BEGINNING)
                if start < 0:
                    if not self.is_mixed:
                        words = "is no line of the audit log, or its beginning was changed"
                        self.faults.append(f"{place}: {words}")
                    continue
                raw = text[start:].rstrip(b"\r\n")
                try:
                    line = verify(raw, self.keys)
                except NotALine as why:
                    number = claimed_number(raw)
                    # A changed line takes the place of the expected one, whatever number it claims.
                    name = f"line {number}" if number else "a line"
                    self.faults.append(f"{place}: {name} {why}")
                    if not self.count or number == self.last + 1:
                        self._append(number or 1, 1, "")
                else:
                    self._place(place, line)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            self.faults.append(f"{file}:{position + 1}: the compressed file is damaged: {error}")

    def end(self, first: int | None = None, last: int | None = None) -> None:
        """Report missing lines, also before the first and after the last line if the caller knows
        which lines these should be."""
        if not self.count:
            self.faults.append("there is no line of the audit log")
            return
        if first is not None and first < self.first:
            self._missing.update(range(first, self.first))
        if last is not None and last > self.last:
            self._missing.update(range(self.last + 1, last + 1))
        # Consecutive missing numbers have the same distance from their places.
        pairs = enumerate(sorted(self._missing))
        for _distance, group in groupby(pairs, lambda pair: pair[1] - pair[0]):
            run = [number for _place, number in group]
            text = f"line {run[0]} is" if len(run) == 1 else f"lines {run[0]} to {run[-1]} are"
            self.faults.append(f"{text} missing")

    def _place(self, place: str, line: Line) -> None:
        number, digest = line.number, int(line.hash[:16], 16) or 1
        if self.count and number <= self.last:
            earlier_digest = self._hashes[number - self.first] if number >= self.first else 0
            if earlier_digest == digest:
                self.repeat_count += 1
            elif earlier_digest > 1:
                self.faults.append(f"{place}: line {number} is there twice, with different content")
            else:
                self.faults.append(f"{place}: line {number} comes after line {self.last}")
                self._missing.discard(number)
                if number >= self.first:
                    self._hashes[number - self.first] = digest
                    self.count += 1
            return
        if self.count and number > self.last + 1:
            self._missing.update(range(self.last + 1, number))
            self._hashes.extend([0] * (number - self.last - 1))
        elif self._last_hash and line.previous != self._last_hash:
            self.faults.append(
                f"{place}: line {number} does not follow line {self.last} as it is here: one of "
                "them is of another chain"
            )
        self._append(number, digest, line.hash)

    def _append(self, number: int, digest: int, line_hash: str) -> None:
        self.first = self.first or number
        self._hashes.append(digest)
        self.last, self._last_hash = number, line_hash
        self.count += 1


def read_lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file, which may be compressed by gzip."""
    is_compressed = file.peek(2).startswith(b"\x1f\x8b")  # type: ignore[attr-defined]  # of a buffered reader
    if is_compressed:
        with gzip.open(file) as stream:
            yield from stream
    else:
        yield from file
