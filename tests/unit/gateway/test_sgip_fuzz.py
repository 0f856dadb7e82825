"""Frames and streams at random: every outcome is a command or a typed error, never another.

A million frames with MSGPLATFORM_FULL_LOAD=1, a share of them otherwise. Most mutations keep the
frame's length right, so that they reach the decoder of a body; that is counted.
"""

import os
import random
from collections import Counter

import pytest

from gateway.sgip import (
    Answered,
    Bind,
    Closed,
    CloseReason,
    Command,
    Event,
    Report,
    Session,
    SgipError,
    Side,
    Submit,
    decode,
    frames as frames_module,
    part_of,
)
from gateway.sgip.constants import HEADER_LENGTH
from tests.unit.gateway.sgip_support import COMMANDS, deliver, report, submit
from tests.unit.gateway.sgip_vectors import VECTORS

FULL = os.environ.get("MSGPLATFORM_FULL_LOAD") == "1"
FRAMES = 1_000_000 if FULL else 30_000
STREAMS = 20_000 if FULL else 600
SEEDS = [bytes.fromhex(entry["hex"]) for entry in VECTORS]
# The long one would be most of the work; a Submit to nobody has the value that is refused.
SEEDS = [frame for frame in SEEDS if len(frame) < 1000]
_ONE = submit(users=("8613012345678", "8613012345679")).encode()
SEEDS += [command.encode() for command in COMMANDS]
SEEDS += [_ONE, (len(_ONE) - 42).to_bytes(4, "big") + _ONE[4:62] + b"\0" + _ONE[105:]]


def mutated(rng: random.Random) -> bytes:
    frame = bytearray(rng.choice(SEEDS))
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        kind = rng.randrange(6)
        at = rng.randrange(HEADER_LENGTH, len(frame) + 1)
        if kind == 0 and at < len(frame):
            frame[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at < len(frame):
            frame[at] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, 20, 100, 101))
        elif kind == 2:
            frame[at:at] = rng.randbytes(rng.randrange(1, 12))
        elif kind == 3:
            del frame[at : at + rng.randrange(1, 12)]
        elif kind == 4 and len(frame) > 90:
            # UserCount or MessageLength, where most of the decisions are made.
            frame[rng.choice((62, 68, len(frame) - 20))] = rng.randrange(256)
        elif kind == 5 and rng.random() < 0.3:
            frame[rng.randrange(4, 8)] = rng.choice((0, 1, 3, 4, 5, 0x10, 0x11, 0x80, 0xFF))
    if rng.random() < 0.9:
        frame[:4] = len(frame).to_bytes(4, "big")
    else:
        frame[rng.randrange(4)] = rng.randrange(256)
    return bytes(frame)


def test_mutated_frames(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reached = 0

    def counted(parse: frames_module.Parser) -> frames_module.Parser:
        def counting(frame: bytes, sequence: tuple[int, int, int]) -> Command:
            nonlocal reached
            reached += 1
            return parse(frame, sequence)

        return counting

    for command_id, parse in list(frames_module.PARSERS.items()):
        monkeypatch.setitem(frames_module.PARSERS, command_id, counted(parse))
    rng, outcomes = random.Random(20261121), Counter[str]()
    for _ in range(FRAMES):
        frame = mutated(rng)
        try:
            command = decode(frame)
        except SgipError as error:
            outcomes[type(error).__name__] += 1
            continue
        outcomes[f"ok {command.command}"] += 1
        # What is behind the first 0x00 of a text is not kept; all else is.
        first_time = reached
        assert decode(command.encode()) == command
        reached = first_time
        if command.command == "Deliver":
            part_of(command)  # type: ignore[arg-type]
    with capsys.disabled():
        print(f"\n{FRAMES} mutated frames, {reached} reached the decoder of a body:")
        for name, count in outcomes.most_common():
            print(f"  {name:24} {count:8}")
    assert sum(outcomes.values()) == FRAMES
    assert reached >= FRAMES / 2
    errors = {"TruncatedFrame", "OverlongFrame", "UnknownCommand", "TruncatedBody", "OverlongBody"}
    assert errors | {"UnservedCommand", "FieldError"} <= set(outcomes)
    assert sum(count for name, count in outcomes.items() if name.startswith("ok")) > FRAMES / 10


def bound_session(side: Side) -> Session:
    if side is Side.SMG:
        session = Session(side, 0, login=lambda bind: 0)
        session.receive(Bind((1, 2, 3), 1, "sp", "").encode(), 0)
    else:
        session = Session(side, 0, login=lambda bind: 0)
        session.receive(Bind((1, 2, 3), 2, "smg", "").encode(), 0)
    session.data_to_send()
    return session


def chunks(data: bytes, rng: random.Random) -> list[bytes]:
    """The data in pieces of a byte up to all of it."""
    pieces = []
    while data:
        size = rng.choice((1, 3, 19, 20, 21, 64, 1000, len(data)))
        pieces.append(data[:size])
        data = data[size:]
    return pieces


def shown(events: list[Event]) -> list[str]:
    """Events, comparable: errors are equal when they say the same."""
    return [repr(event) for event in events]


def played(side: Side, pieces: list[bytes]) -> tuple[list[Event], bytes]:
    session = bound_session(side)
    for counter in range(5):
        command = submit(counter) if side is Side.SP else report(counter)
        session.send(command, 0, counter)
    session.data_to_send()
    events: list[Event] = []
    for piece in pieces:
        events += session.receive(piece, 1)
    events += session.connection_lost(2)
    return events, session.data_to_send()


@pytest.mark.parametrize("side", Side)
def test_streams_mean_the_same_however_they_are_cut(side: Side) -> None:
    """Good and mutated frames, split and merged: the same events, the same answers, one end."""
    rng, reasons = random.Random(7), Counter[CloseReason]()
    requests = 0
    for _ in range(STREAMS):
        good = [submit(n).encode() for n in range(9)] + [report(n).encode() for n in range(9)]
        good += [deliver(n).encode() for n in range(20, 24)]
        good += [
            bytes.fromhex("0000001d80000003b36a7b1f42c4f1d9") + n.to_bytes(4, "big") + bytes(9)
            for n in range(5)
        ]
        frames = [
            mutated(rng) if rng.random() < 0.1 else rng.choice(good)
            for _ in range(rng.randrange(1, 25))
        ]
        data = b"".join(frames)
        whole, answers = played(side, [data])
        cut, cut_answers = played(side, chunks(data, rng))
        assert shown(cut) == shown(whole)
        assert cut_answers == answers
        ends = [event for event in whole if isinstance(event, Closed)]
        assert whole[-1:] == ends
        reasons[ends[0].reason] += 1
        requests += sum(isinstance(event, Submit | Report) for event in whole)
        answered = sum(isinstance(event, Answered) for event in whole)
        assert answered + len(ends[0].unanswered) == 5
    assert {CloseReason.PROTOCOL, CloseReason.LOST} <= set(reasons)
    assert requests > STREAMS


@pytest.mark.parametrize("side", Side)
def test_noise_ends_in_order(side: Side) -> None:
    rng = random.Random(3)
    for _ in range(STREAMS):
        events, _ = played(side, chunks(rng.randbytes(rng.randrange(200)), rng))
        assert isinstance(events[-1], Closed)
