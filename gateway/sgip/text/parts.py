"""Long messages: one text in several parts, each with a user data header (GSM 03.40 9.2.3.24).

`part_of` and `text_of` keep no state: received parts can be stored where all processes see them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from ..commands import Deliver
from ..constants import Coding
from ..errors import TextError
from ..submit import Submit
from .charsets import choose_coding, decode_text, encode_text

OCTETS = 140  # bytes of a short message
MAX_PARTS = 255
_HEADER = 6  # bytes of the user data header of a part
# GSM 03.38 6.2.1: the ASCII characters of the 7-bit alphabet; some take two septets.
_GSM_EXTENSION = frozenset("[]{}~\\^|")
_GSM_ASCII = (frozenset(map(chr, range(0x20, 0x7F))) | {"\n", "\r"}) - {"`"}
# Information elements with reference (8 or 16 bits), total and number of a part → their lengths.
_CONCATENATION = {0x00: 3, 0x08: 4}


@dataclass(frozen=True, slots=True)
class SplitOptions:
    """How a channel sends text.

    `chinese` is GBK or UCS2; `signature` the text that the carrier puts in front, which takes
    space of the first short message; `packed_ascii` says that the SMSC packs ASCII, so that 160
    septets fit. Each of [ ] { } ~ \\ ^ | takes two; a text with a character that GSM's alphabet
    lacks, such as a backtick or a tab, is not packed.
    """

    chinese: Coding = Coding.GBK
    signature: str = ""
    packed_ascii: bool = False


@dataclass(frozen=True, slots=True)
class Parts:
    """The contents of the Submits of one message, with their MessageCoding and TP_udhi."""

    message_coding: int
    tp_udhi: int
    contents: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a message, without its header; a message of one part has total 1, number 1."""

    reference: int
    total: int
    number: int
    payload: bytes


_DEFAULT = SplitOptions()
_SINGLE = (0, 1, 1)  # reference, total and number of the only part of a message


def split(text: str, reference: int = 0, options: SplitOptions = _DEFAULT) -> Parts:
    """The text in one part, or in as many as it needs; no character is cut, none is lost.

    `reference` distinguishes the messages of one sender; it is taken modulo 2^8. The signature
    counts in the choice of the charset. Raises TextError for more than 255 parts, a lone surrogate,
    and a signature that leaves no space for text.
    """
    everything = text + options.signature
    coding = choose_coding(everything, options.chinese)
    can_pack = options.packed_ascii and _GSM_ASCII.issuperset(everything)
    is_packed = can_pack and coding is Coding.ASCII
    widths = _widths(text, coding, is_packed)
    signature_width = sum(_widths(options.signature, coding, is_packed))
    if sum(widths) + signature_width <= _capacity(coding, 0, is_packed):
        return Parts(coding, 0, (encode_text(text, coding),))
    cuts = _cuts(widths, _capacity(coding, _HEADER, is_packed), signature_width)
    total = len(cuts) - 1
    if total > MAX_PARTS:
        raise TextError(f"the text needs {total} parts, {MAX_PARTS} are the most")
    return Parts(
        coding,
        1,
        tuple(
            udh(reference, total, number) + encode_text(text[start:end], coding)
            for number, (start, end) in enumerate(pairwise(cuts), 1)
        ),
    )


def udh(reference: int, total: int, number: int) -> bytes:
    """The user data header of one part, for a reference of 8 bit."""
    return bytes((5, 0, 3, reference & 0xFF, total, number))


def _capacity(coding: Coding, header: int, is_packed: bool) -> int:
    """Bytes of text beside a header in one short message; in septets if packed."""
    octets = OCTETS - header
    if is_packed:
        return octets * 8 // 7  # the header fills whole septets
    return octets - octets % 2 if coding is Coding.UCS2 else octets


def _widths(text: str, coding: Coding, is_packed: bool) -> list[int]:
    """The bytes of each character; in septets if packed."""
    if is_packed:
        return [2 if character in _GSM_EXTENSION else 1 for character in text]
    if coding is Coding.UCS2:
        return [4 if character > "\uffff" else 2 for character in text]
    return [1 if character < "\x80" else 2 for character in text]


def _cuts(widths: Sequence[int], capacity: int, signature_width: int) -> list[int]:
    """The beginning and end of each part of a text, in characters."""
    if capacity - signature_width < 4:  # the widest character has 4 bytes
        raise TextError("the signature leaves no space for the text")
    cuts, space = [0], capacity - signature_width
    for place, width in enumerate(widths):
        if width > space:
            cuts.append(place)
            space = capacity  # the signature is in the first part only
        space -= width
    return [*cuts, len(widths)]


def part_of(command: Deliver | Submit) -> Part:
    """The part of a message that this command carries. A header without a valid meaning is text."""
    content = command.message_content
    header = content[: content[0] + 1] if content else b""
    has_udhi = bool(command.tp_udhi & 1)
    if has_udhi and 1 < len(header) <= len(content) and header[0] == len(header) - 1:
        return Part(*(_concatenation(header[1:]) or _SINGLE), content[len(header) :])
    # Seen in the field: the header without TP_udhi.
    if not has_udhi and header[:3] in (b"\5\0\3", b"\6\x08\4"):
        numbers = _concatenation(header[1:])
        if numbers:
            return Part(*numbers, content[len(header) :])
    return Part(*_SINGLE, content)


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


def text_of(parts: Mapping[int, bytes], codings: Mapping[int, int] | int) -> str:
    """The text of payloads by number. Neighbours of one coding are joined before they are decoded,
    because some senders cut a character in two. Each part may have a coding of its own (GSM 03.40,
    9.2.3.10), such as a part in Latin letters. `codings`: the coding of all parts, or of each part
    by its number."""
    coding_of = dict.fromkeys(parts, codings) if isinstance(codings, int) else codings
    runs = groupby(sorted(parts), key=lambda number: coding_of[number])
    return "".join(
        decode_text(b"".join(parts[number] for number in numbers), coding)
        for coding, numbers in runs
    )
