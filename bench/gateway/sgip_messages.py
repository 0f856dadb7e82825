"""The messages of the bench `sgip`, and what its programs record about them.

Everything about a message follows from its number. A record is the number (32 bits) and a checksum
of what was seen of the message (32 bits); each end keeps its own. Standard library only.
"""

from array import array
from collections import Counter
from pathlib import Path
from zlib import crc32

WINDOW = 32
# Sizes of frames in bytes, for references that send frames of the same sizes.
SUBMIT_BYTES, REPORT_BYTES, RESPONSE_BYTES = 199, 64, 29

_BEGIN, _END = "您的验证码是 ".encode("gbk"), "，请勿告诉他人。".encode("gbk")


def user(number: int) -> str:
    """Each message's own recipient, as SGIP writes it."""
    return "86138%08d" % (number % 100_000_000)  # noqa: UP031 - half the time of an f-string


def content(number: int) -> bytes:
    """A text in GBK; a million messages have different ones."""
    return b"%s%06d%s" % (_BEGIN, number % 1_000_000, _END)


class Records:
    """What one end saw, in order."""

    def __init__(self) -> None:
        self._seen = array("Q")
        self.add = self._seen.append

    def write(self, file: Path) -> None:
        file.write_bytes(self._seen.tobytes())


def record(number: int, seen: bytes) -> int:
    return number << 32 | crc32(seen)


def read(file: Path) -> Counter[int]:
    """How often each record was written."""
    seen = array("Q")
    seen.frombytes(file.read_bytes())
    return Counter(seen)
