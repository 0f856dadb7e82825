"""The charsets of a message: chosen so that no character is lost.

MessageCoding 0 is ASCII, 8 UCS2 (in truth UTF-16, big-endian, without a byte order mark), 15 GBK;
others follow GSM 03.38 section 4, such as 0x18 for a flash message in UCS2.
"""

from ..constants import Coding
from ..errors import TextError

FLASH = 0x10  # message class 0: shown at once, not stored
_CODECS = {Coding.ASCII: "ascii", Coding.GBK: "gbk", Coding.UCS2: "utf-16-be"}


def choose_coding(text: str, chinese: Coding = Coding.GBK) -> Coding:
    """ASCII where it is enough, else `chinese` (GBK or UCS2), else UCS2.

    Raises TextError for a lone surrogate, which is no character.
    """
    if text.isascii():
        return Coding.ASCII
    if chinese is Coding.GBK and _in_gbk(text):
        return Coding.GBK
    encode_text(text, Coding.UCS2)
    return Coding.UCS2


def encode_text(text: str, coding: Coding) -> bytes:
    """Raises TextError for a character that the charset does not have: none is replaced."""
    codec = _CODECS.get(coding)
    if codec is None:
        raise TextError(f"MessageCoding {int(coding)} holds no text")
    try:
        return text.encode(codec)
    except UnicodeEncodeError as error:
        character = f"U+{ord(text[error.start]):04X}"
        raise TextError(f"{codec} has no {character} (at {error.start})") from None


def decode_text(content: bytes, coding: int) -> str:
    """The text of a content without its user data header; never fails.

    Content that says ASCII and is not is read as GB18030, as some handsets mean it. Bytes that are
    no character are shown as \\x and two digits: nothing is dropped.
    """
    alphabet = alphabet_of(coding)
    if alphabet is Coding.UCS2:
        if content[:2] == b"\xff\xfe":  # GSM knows no byte order mark, but some senders write one
            return content[2:].decode("utf-16-le", "backslashreplace")
        if content[:2] == b"\xfe\xff":
            content = content[2:]
        return content.decode("utf-16-be", "backslashreplace")
    if alphabet in (Coding.ASCII, Coding.GBK):
        return content.decode("gb18030", "backslashreplace")
    return content.hex()


def alphabet_of(coding: int) -> Coding:
    """The charset of a content: ASCII, GBK, UCS2 or BINARY (GSM 03.38 section 4)."""
    if coding & ~FLASH == Coding.GBK:
        return Coding.GBK
    if coding == Coding.SIM:
        return Coding.BINARY
    # General group, and the same for messages to delete once read: bits 2 and 3 are the alphabet.
    if coding & 0x80 == 0x00:
        alphabets = (Coding.ASCII, Coding.BINARY, Coding.UCS2, Coding.BINARY)
        return alphabets[coding >> 2 & 3]
    if coding & 0xF0 == 0xF0:  # data coding and message class: bit 2 says whether it is 8 bit
        return Coding.BINARY if coding & 0x04 else Coding.ASCII
    # Message waiting: 0xE0 stores the text as UCS2. The remaining codings use the default alphabet.
    return Coding.UCS2 if coding & 0xF0 == 0xE0 else Coding.ASCII


def _in_gbk(text: str) -> bool:
    """True if GBK has all characters and a receiver with GB18030 reads the same ones."""
    try:
        return text.encode("gbk").decode("gb18030") == text
    except UnicodeError:
        return False
