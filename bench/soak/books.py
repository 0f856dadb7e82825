"""What callers and consumers wrote down, read while they go on writing."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.harness.programs import quantiles
from bench.soak import calls


class _Tail:
    """The whole lines that a file has got since the last look."""

    def __init__(self, file: Path) -> None:
        self._file, self._offset = file, 0

    def lines(self) -> Iterator[list[str]]:
        if not self._file.exists():
            return
        with self._file.open("rb") as opened:
            opened.seek(self._offset)
            data = opened.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.decode("ascii").splitlines():
            yield line.split()


@dataclass(frozen=True, slots=True)
class Arrival:
    """Where and when a message came in, and its seconds since the moment that was drawn."""

    place: str
    at: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Repeat:
    """Where and when a message came in once more."""

    place: str
    number: int
    at: float


class Books:
    """The books of a run: `accepted` has the id of each number by flow, `arrived` the numbers by
    place. Latencies are those of first arrivals; the others are `repeats`. The moments of
    `restart_windows` (from, until) are those in which a message may come once more."""

    def __init__(self, folder: Path) -> None:
        self._accepted_books = {flow: _Tail(folder / f"{flow}.book") for flow in calls.FLOWS}
        self._arrived_books = [_Tail(folder / "arrived.book"), _Tail(folder / "seen.book")]
        self.accepted: dict[str, dict[int, str]] = {flow: {} for flow in calls.FLOWS}
        self.arrived: defaultdict[str, set[int]] = defaultdict(set)
        self.states: dict[int, str] = {}  # the state in the last Report of a short message
        self.repeats: list[Repeat] = []
        self.restart_windows: list[tuple[float, float]] = []
        self.retried: defaultdict[str, int] = defaultdict(int)  # requests with more than one try
        self.unsent: defaultdict[str, int] = defaultdict(int)  # due when the load ended
        self.arrivals: list[Arrival] = []

    def read(self) -> list[Arrival]:
        """Read what is new, and return the new arrivals."""
        new = [*self._read_accepted(), *self._read_arrived()]
        self.arrivals += new
        return new

    def _read_accepted(self) -> Iterator[Arrival]:
        for flow, book in self._accepted_books.items():
            for number, due, at, tries, id in book.lines():
                if tries == "0":
                    self.unsent[flow] += 1
                    continue
                self.retried[flow] += tries != "1"
                self.accepted[flow][int(number)] = id
                # The answer's time: of intake, or of a read timeline.
                yield Arrival(f"{flow}:answer", float(at), float(at) - float(due))

    def _read_arrived(self) -> Iterator[Arrival]:
        for book in self._arrived_books:
            for place, number_text, due, at in book.lines():
                name, _, state = place.partition(":")
                number = int(number_text)
                if state:
                    self.states[number] = state
                if number in self.arrived[name]:
                    # The dead subscriber gets each message several times by its schedule.
                    if name != "dead":
                        self.repeats.append(Repeat(name, number, float(at)))
                    continue
                self.arrived[name].add(number)
                yield Arrival(name, float(at), float(at) - float(due))

    def repeat_counts(self) -> Counter[str]:
        """How many messages came in once more, by place."""
        return Counter(repeat.place for repeat in self.repeats)

    def unexpected_repeats(self, place: str) -> set[int]:
        """Numbers of the messages that came to a place once more outside of restart windows."""
        return {
            each.number
            for each in self.repeats
            if each.place == place
            and not any(start <= each.at < end for start, end in self.restart_windows)
        }

    def between(self, start: float, end: float) -> list[Arrival]:
        return [each for each in self.arrivals if start <= each.at < end]


def report(arrivals: list[Arrival]) -> dict[str, dict[str, float]]:
    """Number and quantiles (ms) of arrivals by place."""
    by_place: defaultdict[str, list[float]] = defaultdict(list)
    for each in arrivals:
        by_place[each.place].append(each.seconds)
    return {
        place: {"count": len(seconds), **quantiles.report(seconds)}
        for place, seconds in sorted(by_place.items())
    }
