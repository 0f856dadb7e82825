"""Long messages that arrive in parts: in any order, over any connection, and not always all.

`part_of` and `text_of` need no memory, so that parts may be kept wherever all processes see them;
`Reassembler` keeps them in this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .charsets import decode_text
from .commands import Deliver
from .submit import Submit

TIMEOUT = 7200.0  # seconds that parts wait for the others
_CONCATENATION = {0x00: 3, 0x08: 4}  # information element: its length


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a message, without its header; a message of one part has total 1, number 1."""

    reference: int
    total: int
    number: int
    payload: bytes


PartKey = tuple[str, str, int, int]  # UserNumber, SPNumber, reference, total


@dataclass(frozen=True, slots=True)
class Assembled:
    """A message, or what came of one within the time: `missing` are the numbers of the others."""

    user_number: str
    sp_number: str
    message_coding: int
    text: str
    delivers: tuple[Deliver, ...]
    missing: tuple[int, ...] = ()


@dataclass(slots=True)
class _Open:
    since: float
    delivers: dict[int, tuple[Part, Deliver]] = field(default_factory=dict)


def part_of(command: Deliver | Submit) -> Part:
    """Which part of which message it is; a header that makes no sense is text."""
    content = command.message_content
    header = content[: content[0] + 1] if content else b""
    flagged = bool(command.tp_udhi & 1)
    if flagged and 1 < len(header) <= len(content) and header[0] == len(header) - 1:
        found = _concatenation(header[1:])
        return Part(*(found or (0, 1, 1)), content[len(header) :])
    # Seen in the field: the header without TP_udhi.
    if not flagged and header[:3] in (b"\5\0\3", b"\6\x08\4"):
        found = _concatenation(header[1:])
        if found:
            return Part(*found, content[len(header) :])
    return Part(0, 1, 1, content)


def _concatenation(elements: bytes) -> tuple[int, int, int] | None:
    """Reference, total and number from the information elements of a header."""
    while len(elements) > 2:
        kind, length = elements[0], elements[1]
        data, elements = elements[2 : 2 + length], elements[2 + length :]
        if _CONCATENATION.get(kind) == length == len(data):
            reference, total, number = int.from_bytes(data[:-2], "big"), data[-2], data[-1]
            if 1 <= number <= total:
                return reference, total, number
    return None


def text_of(parts: Mapping[int, bytes], coding: int) -> str:
    """The text of payloads by number; joined first, for senders that cut characters."""
    return decode_text(b"".join(parts[number] for number in sorted(parts)), coding)


class Reassembler:
    """Keeps parts until their message is whole, or `timeout` seconds are over.

    All times are seconds of one clock that never goes back, given as `now`.
    """

    def __init__(self, timeout: float = TIMEOUT) -> None:
        self._timeout = timeout
        self._open: dict[PartKey, _Open] = {}

    def __len__(self) -> int:
        """How many messages wait for parts."""
        return len(self._open)

    def add(self, deliver: Deliver, now: float) -> list[Assembled]:
        """What is complete now: nothing, or the message, or what a reused reference cut short."""
        part = part_of(deliver)
        if part.total == 1:
            return [_assembled({1: (part, deliver)}, 1)]
        key = (deliver.user_number, deliver.sp_number, part.reference, part.total)
        done = []
        known = self._open.get(key)
        if known and _contradicts(known, part):
            done.append(self._take(key))
            known = None
        if known is None:
            known = self._open[key] = _Open(now)
        known.delivers.setdefault(part.number, (part, deliver))
        if len(known.delivers) == part.total:
            done.append(self._take(key))
        return done

    def expire(self, now: float) -> list[Assembled]:
        """The messages whose parts waited too long, as far as they came."""
        late = []
        for key, known in self._open.items():
            if now - known.since < self._timeout:
                break  # the others are younger
            late.append(key)
        return [self._take(key) for key in late]

    def _take(self, key: PartKey) -> Assembled:
        return _assembled(self._open.pop(key).delivers, key[3])


def _contradicts(known: _Open, part: Part) -> bool:
    """Another content under the same number: the sender began a new message."""
    same = known.delivers.get(part.number)
    return same is not None and same[0].payload != part.payload


def _assembled(parts: Mapping[int, tuple[Part, Deliver]], total: int) -> Assembled:
    numbers = sorted(parts)
    first = parts[numbers[0]][1]
    coding = first.message_coding
    payloads = {number: parts[number][0].payload for number in numbers}
    return Assembled(
        first.user_number,
        first.sp_number,
        coding,
        text_of(payloads, coding),
        tuple(parts[number][1] for number in numbers),
        tuple(number for number in range(1, total + 1) if number not in parts),
    )
