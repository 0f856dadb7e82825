"""Cells: several whole platforms side by side, each with its own database and Redis.

Each business system lives in one cell. The low bits of an id name the cell that made the id, so
that no two cells make the same id. API keys and APPKEYs begin with the cell, so that a proxy finds
the cell. A platform without the setting CELL is the only one, and names no cell.
"""

import re
from typing import Self

import msgspec
from django.conf import settings

MAX_CELLS = 256
_FORM = re.compile(r"([0-9]{1,3})/([0-9]{1,3})")


class Cell(msgspec.Struct, frozen=True):
    """Cell `number` of `count`; `count` is a power of two."""

    number: int = 0
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a text such as 3/16. Raises ValueError with a sentence."""
        match = _FORM.fullmatch(text)
        if match is None:
            raise ValueError("it must be a number, a slash and the number of cells, such as 3/16")
        number, count = int(match[1]), int(match[2])
        if not 1 <= count <= MAX_CELLS or count & (count - 1):
            raise ValueError(
                f"the number of cells, {count}, must be 1, 2, 4, 8, 16, 32, 64, 128 or 256"
            )
        if number >= count:
            raise ValueError(f"cells are numbered from 0, and the last of {count} is {count - 1}")
        return cls(number, count)

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    @property
    def is_only(self) -> bool:
        """True if there is no other cell."""
        return self.count == 1

    @property
    def label(self) -> str:
        """The cell's name in pages, logs, metrics and heartbeats; '' for the only cell."""
        return "" if self.is_only else str(self)

    @property
    def code(self) -> str:
        """The cell's prefix in names that a proxy reads: two hexadecimal digits, 00 to ff; '' for
        the only cell."""
        return "" if self.is_only else f"{self.number:02x}"

    def number_of(self, id: int) -> int:
        """The number of the cell, among `count`, that made an id. Ids from before there were cells
        have any number."""
        return id & (self.count - 1)


def own() -> Cell:
    """The cell of this program, from the setting CELL."""
    cell: Cell = settings.CELL
    return cell
