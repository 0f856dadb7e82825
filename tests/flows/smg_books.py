"""What a simulated gateway wrote down, read on as it grows: nothing else is believed of it."""

from collections import defaultdict
from pathlib import Path

from gateway import sgip

Words = tuple[int, int, int]  # of a sequence


class Books:
    """Its log of Submits, and its journal of Reports and MOs."""

    def __init__(self, log: Path, journal: Path) -> None:
        self.log, self.journal = log, journal
        self._places: dict[Path, int] = defaultdict(int)
        self._taken: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._put: dict[str, bytes] = {}
        self._answered: dict[str, int] = {}

    def accepted(self) -> dict[tuple[str, str], set[str]]:
        """(user, part) → the sequences under which it got Result 0."""
        for line in self._new_lines(self.log):
            sequence, user, part, result = line.split("\t")
            if result == "0":
                self._taken[user, part].add(sequence)
        return self._taken

    def put(self) -> list[sgip.Command]:
        """Every Report and MO that it ever had to tell."""
        self._read_journal()
        return [sgip.decode(frame) for frame in self._put.values()]

    def count_put(self) -> int:
        """How many of them there are, without a look into them."""
        self._read_journal()
        return len(self._put)

    def answered(self) -> set[Words]:
        """The sequences of those that the platform answered with Result 0."""
        self._read_journal()
        return {_words(text) for text, result in self._answered.items() if result == 0}

    def count_answered(self) -> int:
        self._read_journal()
        return len(self._answered)

    def owed(self) -> int:
        """How many Reports and MOs have no answer."""
        self._read_journal()
        return len(self._put.keys() - self._answered.keys())

    def _read_journal(self) -> None:
        for line in self._new_lines(self.journal):
            sign, text, *result = line.split("\t")
            if sign == "+":
                self._put[text[16:40]] = bytes.fromhex(text)
            else:
                self._answered[text] = int(result[0])

    def _new_lines(self, file: Path) -> list[str]:
        """Whole ones only: it may be written to at this moment."""
        if not file.exists():
            return []
        with file.open("rb") as opened:
            opened.seek(self._places[file])
            whole = opened.read().rpartition(b"\n")[0]
        self._places[file] += len(whole) + bool(whole)
        return whole.decode("ascii").splitlines()


def _words(text: str) -> Words:
    node, ts, seqno = (int(text[at : at + 8], 16) for at in (0, 8, 16))
    return node, ts, seqno
