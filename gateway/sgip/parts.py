"""Long messages: one text in several parts, each with a user data header (GSM 03.40 9.2.3.24)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate, pairwise

from .charsets import choose_coding, encode_text
from .constants import Coding
from .errors import TextError

OCTETS = 140  # of a short message
MAX_PARTS = 255
_SEPTET_CHARACTERS = 160  # what 140 octets hold when the SMSC packs ASCII into 7 bits


class SignedPart(Enum):
    """Which part gets the signature that the carrier adds."""

    FIRST = "first"
    LAST = "last"
    EVERY = "every"


@dataclass(frozen=True, slots=True)
class SplitOptions:
    """How a channel sends text.

    `chinese` is GBK or UCS2; `signature` the text that the carrier adds, for which room is kept;
    `wide_reference` takes references of 16 bit; `packed_ascii` says that the SMSC packs ASCII,
    so that 160 characters fit.
    """

    chinese: Coding = Coding.GBK
    signature: str = ""
    signed_part: SignedPart = SignedPart.FIRST
    wide_reference: bool = False
    packed_ascii: bool = False


@dataclass(frozen=True, slots=True)
class Parts:
    """The contents of the Submits of one message, with their MessageCoding and TP_udhi."""

    message_coding: int
    tp_udhi: int
    contents: tuple[bytes, ...]


_DEFAULT = SplitOptions()


def split(text: str, reference: int = 0, options: SplitOptions = _DEFAULT) -> Parts:
    """The text in one part, or in as many as it needs; no character is cut, none is lost.

    `reference` tells the messages of one sender apart; it is taken modulo 2^8 or 2^16. The
    signature takes part in the choice of the charset. Raises TextError for more than 255 parts, a
    lone surrogate, and a signature that leaves no room.
    """
    coding = choose_coding(text + options.signature, options.chinese)
    room = len(encode_text(options.signature, coding))
    whole = encode_text(text, coding)
    if len(whole) + room <= _capacity(coding, 0, options):
        return Parts(coding, 0, (whole,))
    header = 7 if options.wide_reference else 6
    capacity = _capacity(coding, header, options)
    cuts = _cuts(text, coding, capacity, room, options.signed_part)
    total = len(cuts) - 1
    if total > MAX_PARTS:
        raise TextError(f"the text needs {total} parts, {MAX_PARTS} are the most")
    return Parts(
        coding,
        1,
        tuple(
            udh(reference, total, number, wide=options.wide_reference) + whole[start:end]
            for number, (start, end) in enumerate(pairwise(cuts), 1)
        ),
    )


def udh(reference: int, total: int, number: int, *, wide: bool = False) -> bytes:
    """The user data header of one part, for a reference of 8 or (`wide`) 16 bit."""
    if wide:
        return bytes((6, 8, 4, reference >> 8 & 0xFF, reference & 0xFF, total, number))
    return bytes((5, 0, 3, reference & 0xFF, total, number))


def _capacity(coding: Coding, header: int, options: SplitOptions) -> int:
    if coding is Coding.ASCII and options.packed_ascii:
        return (OCTETS - header) * 8 // 7 if header else _SEPTET_CHARACTERS
    octets = OCTETS - header
    return octets - octets % 2 if coding is Coding.UCS2 else octets


def _cuts(text: str, coding: Coding, capacity: int, room: int, signed: SignedPart) -> list[int]:
    """Where the parts of the encoded text begin and end, in bytes."""
    every = room if signed is SignedPart.EVERY else 0
    first = room if signed is SignedPart.FIRST else every
    last = room if signed is SignedPart.LAST else every
    if capacity - room < 4:  # the widest character has 4 bytes
        raise TextError("the signature leaves no room for the text")
    ends = list(accumulate(_widths(text, coding)))
    cuts, limit, before = [0], capacity - first, 0
    for end in ends:
        if end - cuts[-1] > limit:
            cuts.append(before)
            limit = capacity - every
        before = end
    if before - cuts[-1] > capacity - last:  # its last character begins another part
        cuts.append(ends[-2])
    cuts.append(before)
    return cuts


def _widths(text: str, coding: Coding) -> Iterator[int]:
    """The bytes of each character."""
    if coding is Coding.UCS2:
        return (4 if character > "\uffff" else 2 for character in text)
    return (1 if character < "\x80" else 2 for character in text)
