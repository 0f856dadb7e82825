"""The log of a simulated SMG: a line for each user of a Submit that it answered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gateway.sgip import RETRY_RESULTS, SequenceNumber


def read_users(log: Path) -> Iterator[tuple[SequenceNumber, str, int]]:
    """Sequence, user and Result of each line; a line that was cut short is removed."""
    if not log.exists():
        return
    whole = log.read_bytes()
    lines = whole[: whole.rfind(b"\n") + 1]
    if lines != whole:
        log.write_bytes(lines)
    for line in lines.decode("ascii").splitlines():
        sequence, user, _part, result = line.split("\t")
        node, stamp, counter = map(int, sequence.split(":"))
        yield (node, stamp, counter), user, int(result)


def read_log(log: Path) -> Iterator[tuple[SequenceNumber, int]]:
    """Sequence and Result of what was accepted, or refused for good."""
    for sequence, _user, result in read_users(log):
        if result not in RETRY_RESULTS:
            yield sequence, result
