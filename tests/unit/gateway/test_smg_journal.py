"""The simulated gateway's journal: what it owes survives whatever kills it."""

from pathlib import Path

import pytest

from gateway.sgip import Deliver, Report, Result
from gateway.simulator.journal import Journal

SUBMIT = (3010099999, 1121135200, 17)
USER = "8613800000000"


def report(seqno: int, submit: tuple[int, int, int] = SUBMIT) -> bytes:
    return Report((3010000001, 1121135201, seqno), submit, 0, USER, 0, 0).encode()


def deliver(seqno: int) -> bytes:
    return Deliver((3010000001, 1121135201, seqno), USER, "10655", message_content=b"TD").encode()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def test_it_owes_what_has_no_answer(path: Path) -> None:
    journal = Journal(path)
    for frame in (report(1), deliver(2), report(3)):
        journal.put(frame)
    journal.note_answer(report(1), Result.OK)
    journal.note_answer(deliver(2), Result.BUSY)  # come again
    journal.flush()
    assert Journal(path).owed_frames == journal.owed_frames == [deliver(2), report(3)]


def test_a_line_that_was_cut_short_was_never_sent(path: Path) -> None:
    journal = Journal(path)
    journal.put(report(1))
    journal.put(report(2))
    journal.close()
    path.write_bytes(path.read_bytes()[:-10])
    again = Journal(path)
    assert again.owed_frames == [report(1)]
    again.put(report(3))
    again.close()
    assert Journal(path).owed_frames == [report(1), report(3)]


def test_what_was_accepted_and_not_reported(path: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    node, ts, seqno = SUBMIT
    lines = [(seqno, 0), (seqno + 1, 0), (seqno + 2, 88)]
    log.write_text("".join(f"{node}:{ts}:{n}\t{USER}\t1/1\t{result}\n" for n, result in lines))
    journal = Journal(path)
    journal.put(report(1))
    journal.note_answer(report(1), Result.OK)
    journal.flush()
    for known in (journal, Journal(path)):
        assert list(known.unreported_users(log)) == [((node, ts, seqno + 1), USER)]
