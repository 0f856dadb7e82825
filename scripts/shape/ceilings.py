"""The file of ceilings: read, compared with the figures, lowered.

Each line has a figure's name, its ceiling, the figure on the day when its line was written (start),
and the sum of what the ceiling was lowered by since. Below it stands each raise with its reason:

    lines of gateway      15240    15233   33
      +40  gateways can be grouped

The ceiling has to be `start - lowered + raises`, so a ceiling that is changed alone is an error.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from shape.figures import Figure

FILE = "scripts/shape_ceilings.txt"
MAX_PLACES = 10  # shown below a figure
_NUMBER = r"\d+(?:\.\d)?"
_CEILING = re.compile(
    rf"(?P<name>\S.*?\S) +(?P<ceiling>{_NUMBER}) +(?P<start>{_NUMBER}) +(?P<lowered>{_NUMBER})\s*"
)
_RAISE = re.compile(rf"\s+\+\s*(?P<amount>{_NUMBER})\s*(?P<reason>.*)")


class WrongFile(Exception):
    """A line of the file that cannot be true; the message names it and says how to repair it."""


@dataclass
class Ceiling:
    """One line of the file with the sum of the raises below it."""

    number: int  # of the line
    name: str
    ceiling: Decimal
    start: Decimal
    lowered: Decimal
    raises: Decimal = Decimal(0)

    @property
    def sum(self) -> Decimal:
        return self.start - self.lowered + self.raises

    def __str__(self) -> str:
        return f"{self.name:46}{self.ceiling:>8}{self.start:>9}{self.lowered:>9}"


def read_ceilings(root: Path) -> dict[str, Ceiling]:
    """Ceilings by the figure's name. Raises WrongFile."""
    ceilings: dict[str, Ceiling] = {}
    last: Ceiling | None = None
    for number, line in enumerate((root / FILE).read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if last and (match := _RAISE.fullmatch(line)):
            if len(match["reason"].split()) < 2:
                raise WrongFile(f"{FILE}:{number}: write what the raise is for: `{line.strip()} …`")
            last.raises += Decimal(match["amount"])
        elif match := _CEILING.fullmatch(line):
            numbers = (Decimal(match[key]) for key in ("ceiling", "start", "lowered"))
            last = ceilings[match["name"]] = Ceiling(number, match["name"], *numbers)
        else:
            raise WrongFile(f"{FILE}:{number}: neither a figure with three numbers nor a raise")
    for ceiling in ceilings.values():
        if ceiling.ceiling != ceiling.sum:
            raise WrongFile(
                f"{FILE}:{ceiling.number}: the ceiling of `{ceiling.name}` is {ceiling.ceiling}, "
                f"and start - lowered + raises is {ceiling.sum}. A raise has a line below the "
                "figure: `  +40  what it is for`"
            )
    return ceilings


def compare(root: Path, figures: Sequence[Figure]) -> tuple[list[str], list[str]]:
    """Complaints about figures above their ceilings, and remarks on those below. Raises
    WrongFile."""
    ceilings = read_ceilings(root)
    if unknown := ceilings.keys() ^ {figure.name for figure in figures}:
        raise WrongFile(f"{FILE}: each figure has one line, see {', '.join(sorted(unknown))}")
    complaints: list[str] = []
    remarks = []
    for figure in figures:
        ceiling = ceilings[figure.name]
        if figure.value > ceiling.ceiling:
            complaints += _complaint(root, figure, ceiling)
        elif figure.value < ceiling.ceiling:
            remarks.append(f"{figure.name}: {ceiling.ceiling} could be lowered to {figure.value}")
    return complaints, remarks


def _complaint(root: Path, figure: Figure, ceiling: Ceiling) -> Iterator[str]:
    surplus = figure.value - ceiling.ceiling
    yield f"{figure.name}: {figure.value} is above the ceiling {ceiling.ceiling}. {figure.advice}"
    yield (
        f"  Or raise it with a reason ({FILE}:{ceiling.number}): ceiling {figure.value}, and below "
        f"it `  +{surplus}  what it is for`"
    )
    # Files that were changed last come first: what is new is among them.
    changes = {place.path: -(root / place.path).stat().st_mtime for place in figure.places}
    places = sorted(figure.places, key=lambda place: (changes[place.path], place))
    yield from (f"  {place}" for place in places[:MAX_PLACES])
    if len(places) > MAX_PLACES:
        yield f"  and {len(places) - MAX_PLACES} more: scripts/shape.py --places '{figure.name}'"


def lower(root: Path, figures: Sequence[Figure]) -> list[str]:
    """Write the figures that are below their ceilings into the file; returns what was lowered."""
    ceilings = read_ceilings(root)
    lines = (root / FILE).read_text(encoding="utf-8").splitlines()
    changes = []
    for figure in figures:
        ceiling = ceilings.get(figure.name)
        if ceiling and figure.value < ceiling.ceiling:
            changes.append(f"{figure.name}: {ceiling.ceiling} → {figure.value}")
            ceiling.lowered += ceiling.ceiling - figure.value
            ceiling.ceiling = figure.value
            lines[ceiling.number - 1] = str(ceiling)
    (root / FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return changes
