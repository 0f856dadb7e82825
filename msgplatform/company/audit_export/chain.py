"""Verifies the lines of files: finds lines that were changed, left out, moved or cut off.

An identical line that comes again is no fault: a killed exporter's lines are handed over again. A
fault is reported once, and the lines after it are still verified.
"""

from __future__ import annotations

import gzip
from array import array
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import BinaryIO, NamedTuple

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from msgplatform.company.audit_export import lines
from msgplatform.company.audit_export.lines import BEGINNING, Line, NotALine

_GZIP = b"\x1f\x8b"


class Place(NamedTuple):
    """A line of a file, counted from 1."""

    file: str
    row: int

    def __str__(self) -> str:
        return f"{self.file}:{self.row}"


class Chain(msgspec.Struct):
    """The lines read so far. `is_mixed`: lines without the form's beginning come from other
    programs and are no fault."""

    keys: Mapping[str, Ed25519PublicKey]
    is_mixed: bool = False
    faults: list[str] = msgspec.field(default_factory=list)
    first: int = 0
    last: int = 0
    count: int = 0  # lines of the chain, without repeated ones
    repeated: int = 0
    # The first eight bytes of the hash of each line from `first` to `last`; 0: missing.
    _hashes: array[int] = msgspec.field(default_factory=lambda: array("Q"))
    _missing: set[int] = msgspec.field(default_factory=set)
    _last_hash: str = ""  # '' after a changed line, which no line can follow

    def read(self, file: str, rows: Iterable[bytes]) -> None:
        """Verify the lines of the next file, in the order of the chain."""
        row = 0
        try:
            for row, text in enumerate(rows, 1):
                if not text.strip():
                    continue
                place, start = Place(file, row), text.find(BEGINNING)
                if start < 0:
                    if not self.is_mixed:
                        words = "is no line of the audit log, or its beginning was changed"
                        self.faults.append(f"{place}: {words}")
                    continue
                raw = text[start:].rstrip(b"\r\n")
                try:
                    line = lines.verified(raw, self.keys)
                except NotALine as why:
                    number = lines.claimed_number(raw)
                    # A changed line takes the place of the expected one, whatever number it claims.
                    name = f"line {number}" if number else "a line"
                    self.faults.append(f"{place}: {name} {why}")
                    if not self.count or number == self.last + 1:
                        self._append(number or 1, 1, "")
                else:
                    self._place(place, line)
        except (EOFError, gzip.BadGzipFile) as error:
            self.faults.append(f"{Place(file, row + 1)}: the compressed file is damaged: {error}")

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

    def _place(self, place: Place, line: Line) -> None:
        number, digest = line.number, int(line.hash[:16], 16) or 1
        if self.count and number <= self.last:
            earlier_digest = self._hashes[number - self.first] if number >= self.first else 0
            if earlier_digest == digest:
                self.repeated += 1
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


def rows(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file, which may be compressed by gzip."""
    is_compressed = file.peek(2)[:2] == _GZIP  # type: ignore[attr-defined]  # of a buffered reader
    if is_compressed:
        with gzip.open(file) as stream:
            yield from stream
    else:
        yield from file
