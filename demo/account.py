"""The account of a demo: the records that each receiver must hold, and those that it holds.

Standard library only: it is made from the demo's own list of what was answered, and must not share
code with the programs that it checks.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

# Pairs of a key and a value, in their order. A message that is told by its id has the value None.
Records = Sequence[tuple[str, object]]


@dataclass
class Differences:
    """Keys of records, by what is wrong with them; `receivers` are those that hold others than they
    must. `different` have another value or place, `extra` are strangers and second copies."""

    receivers: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)

    @property
    def lost(self) -> int:
        return len(self.missing) + len(self.different)

    @property
    def count(self) -> int:
        return self.lost + len(self.extra)


def compare(
    expected: Mapping[str, Records], seen: Mapping[str, Records], is_ordered: bool = False
) -> Differences:
    """The differences at the receivers of `seen`, each of which is in `expected`; with `is_ordered`
    the order counts, too."""
    differences = Differences()
    for receiver, records in seen.items():
        if list(records) == list(expected[receiver]):
            continue
        values, counts = dict(expected[receiver]), Counter(key for key, _ in records)
        first = dict(reversed(records))  # copies: the first one counts, the others are extra
        missing = [key for key in values if key not in counts]
        different = [key for key, value in values.items() if key in first and first[key] != value]
        extra = list((counts - Counter(values.keys())).elements())
        if is_ordered and not (missing or different or extra):
            pairs = zip(records, expected[receiver], strict=True)
            different = [record[0] for record, other in pairs if record != other]
        if missing or different or extra:
            differences.receivers.append(receiver)
            differences.missing += missing
            differences.different += different
            differences.extra += extra
    return differences
