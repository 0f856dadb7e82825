"""Commands to frames and back; an error names what is wrong with a frame or a field, and where."""

import copy
import dataclasses
import pickle
import struct
from typing import Any

import pytest
from hypothesis import given, strategies as st

from gateway.sgip import (
    Bind,
    BindResp,
    BodyError,
    Command,
    CommandId,
    FieldError,
    FrameError,
    FrameStream,
    OverlongBody,
    OverlongFrame,
    Report,
    ReportResp,
    SgipError,
    Submit,
    Trace,
    TraceHop,
    TraceResp,
    TruncatedBody,
    TruncatedFrame,
    Unbind,
    UnbindResp,
    UnknownCommand,
    UnservedCommand,
    UserRpt,
    decode,
    errors as error_classes,
    result_text,
    users_per_submit,
)
from gateway.sgip.frames import response_to
from tests.unit.gateway.sgip_support import COMMAND, COMMANDS, NODE, TIME, deliver, report, submit

SEQUENCE = (NODE, TIME, 7)


@given(COMMAND)
def test_what_is_encoded_is_decoded(command: Command) -> None:
    frame = command.encode()
    assert struct.unpack(">I", frame[:4]) == (len(frame),)
    again = decode(frame)
    assert again == command
    assert type(again) is type(command)
    assert again.encode() == frame


@given(COMMAND, st.data())
def test_a_frame_that_is_cut_or_continued_is_refused(command: Command, data: Any) -> None:
    frame = command.encode()
    cut = data.draw(st.integers(0, len(frame) - 1))
    with pytest.raises(TruncatedFrame) as caught:
        decode(frame[:cut])
    assert caught.value.closes
    with pytest.raises(OverlongFrame):
        decode(frame + b"\0")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.command)
def test_a_body_of_another_length_is_refused_with_result_8(command: Command) -> None:
    frame = command.encode()
    assert decode(frame) == command
    tolerated = {BindResp: {21}, UnbindResp: {29}}.get(type(command), set())
    for size in set(range(20, len(frame) + 10)) - {len(frame)} - tolerated:
        with pytest.raises(BodyError) as caught:
            decode(struct.pack(">I", size) + frame.ljust(size, b"\0")[4:size])
        assert caught.value.closes
        assert caught.value.result == 8
        assert type(caught.value) is (TruncatedBody if size < len(frame) else OverlongBody)


def test_a_content_longer_than_message_length_says_is_refused() -> None:
    frame = bytearray(submit(content=b"1234").encode())
    for length, kind in ((3, OverlongBody), (5, TruncatedBody), (2**32 - 1, TruncatedBody)):
        frame[-16:-12] = struct.pack(">I", length)
        with pytest.raises(kind):
            decode(bytes(frame))


@pytest.mark.parametrize("count", [0, 101, 255])
def test_a_submit_without_users_or_with_too_many_is_answered(count: int) -> None:
    frame = submit().encode()
    head, one, tail = frame[4:62], frame[63:84], frame[84:]
    body = head + bytes((count,)) + one * count + tail
    if len(body) + 4 > 4096:  # 255 users do not fit into a frame at all
        with pytest.raises(OverlongFrame):
            decode(struct.pack(">I", len(body) + 4) + body)
        return
    with pytest.raises(FieldError) as caught:
        decode(struct.pack(">I", len(body) + 4) + body)
    assert not caught.value.closes
    assert (caught.value.result, caught.value.field) == (5, "user_count")


@pytest.mark.parametrize("command_id", [0, 0x12, 0xFFF, 0x1001, 0x7FFFFFFF, 0x80000000, 2**32 - 1])
def test_an_unknown_command_closes(command_id: int) -> None:
    with pytest.raises(UnknownCommand) as caught:
        decode(struct.pack(">5I", 20, command_id, *SEQUENCE))
    assert caught.value.closes


@pytest.mark.parametrize("response", [0, 0x80000000])
@pytest.mark.parametrize("command_id", range(CommandId.ADD_SP, CommandId.CHECK_USER + 1))
def test_a_command_between_gateways_does_not_close(command_id: int, response: int) -> None:
    with pytest.raises(UnservedCommand) as caught:
        decode(struct.pack(">5I", 20, command_id | response, *SEQUENCE))
    assert not caught.value.closes
    assert caught.value.result == 7


def test_a_frame_beyond_what_is_accepted_is_refused() -> None:
    content = b"x" * (4096 - 77)
    assert len(deliver(content=content).encode()) == 4096
    assert decode(deliver(content=content).encode()) == deliver(content=content)
    frame = deliver(content=content).encode() + b"\0"
    with pytest.raises(OverlongFrame):
        decode(struct.pack(">I", 4097) + frame[4:])


def test_bytes_that_are_not_of_the_type_bytes_are_read_too() -> None:
    kinds: tuple[Any, ...] = (bytearray, memoryview)
    for kind in kinds:
        assert decode(kind(submit().encode())) == submit()
        assert FrameStream().feed(kind(submit().encode())) == [submit().encode()]


def test_text_fills_its_field_and_ends_at_the_first_nul() -> None:
    full = Bind(SEQUENCE, 1, "a" * 16, "b" * 16)
    assert decode(full.encode()) == full
    frame = bytearray(full.encode())
    frame[24] = 0  # what an implementation left behind the end of a text
    found = decode(bytes(frame))
    assert isinstance(found, Bind)
    assert found.login_name == "aaa"


def test_an_empty_fee_is_no_error() -> None:
    made = dataclasses.replace(submit(), fee_value="", given_value="")
    found = decode(made.encode())
    assert isinstance(found, Submit)
    assert (found.fee_value, found.given_value) == ("", "")


def _with(command: Any, field: str, value: Any) -> Any:
    """Also with a value that its type does not allow."""
    return dataclasses.replace(command, **{field: value})


WRONG: list[tuple[Command | TraceHop, str]] = [
    (_with(submit(), field, value), field)
    for field, value in {
        "sequence": (1, 2),
        "sp_number": "1" * 22,
        "charge_number": "0\0",
        "user_numbers": (),
        "corp_id": "123456",
        "service_type": "号",
        "fee_type": 256,
        "fee_value": 5,
        "given_value": None,
        "agent_flag": -1,
        "morelateto_mt_flag": "2",
        "priority": 1.5,
        "expire_time": "x" * 17,
        "schedule_time": b"x",
        "report_flag": 1000,
        "tp_pid": None,
        "tp_udhi": 256,
        "message_coding": 256,
        "message_type": 256,
        "message_content": "text",
        "reserve": "8 chars.",
    }.items()
]
WRONG += [
    (submit(users=("1",) * 101), "user_numbers"),
    (submit(users=("1" * 22,)), "user_numbers"),
    (submit(users=("1\0",)), "user_numbers"),
    (submit(users=("1",) * 100, content=b"x" * 2000), "message_content"),
    (deliver(content=b"x" * 4020), "message_content"),
    (deliver(tp_udhi=256), "tp_udhi"),
    (_with(deliver(), "message_content", None), "message_content"),
    (dataclasses.replace(report(), state=256), "state"),
    (dataclasses.replace(report(), submit_sequence=(1, 2, 2**32)), "submit_sequence"),
    (dataclasses.replace(report(), reserve=b"short"), "reserve"),
    (Bind(SEQUENCE, 1, "a" * 17, ""), "login_name"),
    (Unbind((-1, 0, 0)), "sequence"),
    (UnbindResp((0, 0)), "sequence"),  # type: ignore[arg-type]
    (BindResp(SEQUENCE, 256), "result"),
    (ReportResp(SEQUENCE, 0, b""), "reserve"),
    (UserRpt(SEQUENCE, "1", "2", 256), "user_condition"),
    (Trace(SEQUENCE, (1, 2, -3), "1"), "submit_sequence"),
    (TraceHop(0, "1234567", "", ""), "node_id"),
    (TraceResp(SEQUENCE, (TraceHop(256, "", "", ""),)), "result"),
    (TraceResp(SEQUENCE, (TraceHop(0, "", "", ""),) * 87), "hops"),
    (TraceResp(SEQUENCE, None), "hops"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("command", "field"), WRONG, ids=lambda value: str(value)[:40])
def test_a_value_that_does_not_fit_is_named(command: Command | TraceHop, field: str) -> None:
    with pytest.raises(FieldError) as caught:
        command.encode()
    assert caught.value.field == field
    assert not caught.value.closes


@pytest.mark.parametrize("command_id", [*range(1, 0x12), 0x1000])
def test_every_command_has_a_refusal(command_id: int) -> None:
    frame = struct.pack(">5I", 20, command_id, *SEQUENCE)
    refusal = response_to(frame, 11)
    assert struct.unpack(">5I", refusal[:20]) == (
        len(refusal),
        command_id | 0x80000000,
        *SEQUENCE,
    )
    if command_id not in range(6, 0x11):
        response = decode(refusal)
        result = response.hops[0].result if isinstance(response, TraceResp) else None
        assert getattr(response, "result", result) in (11, None)
        assert response.encode() == refusal


def test_a_command_cannot_be_changed_and_has_no_dictionary() -> None:
    made = submit()
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.priority = 1  # type: ignore[misc]
    with pytest.raises((AttributeError, TypeError)):
        made.nothing = 1  # type: ignore[attr-defined]
    assert not hasattr(made, "__dict__")
    with pytest.raises(TypeError):
        Report(SEQUENCE)  # type: ignore[call-arg]
    assert {made: 1}[copy.deepcopy(made)] == 1
    assert pickle.loads(pickle.dumps(made)) == made


def test_a_packet_of_2_kb_holds_84_users_with_140_bytes() -> None:
    assert users_per_submit(140) == 84
    assert users_per_submit(1) == 84
    assert users_per_submit(1, at_most=100) == 90
    assert users_per_submit(1900) == 1
    for length in (1, 70, 140):
        users = tuple(f"86130{n:08d}" for n in range(users_per_submit(length, 100)))
        assert len(submit(users=users, content=b"x" * length).encode()) <= 2048
        more = (*users, "8613099999999")
        assert len(submit(users=more, content=b"x" * length).encode()) > 2048


@given(st.lists(COMMAND, max_size=6), st.data())
def test_frames_come_out_of_a_stream_however_it_is_cut(commands: list[Command], data: Any) -> None:
    frames = [command.encode() for command in commands]
    stream, found = FrameStream(), []
    rest = b"".join(frames)
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        found += stream.feed(rest[:size])
        rest = rest[size:]
    assert found == frames
    assert stream.error is None


@pytest.mark.parametrize(
    ("length", "kind"), [(0, TruncatedFrame), (19, TruncatedFrame), (4097, OverlongFrame)]
)
def test_a_stream_ends_at_a_length_that_cannot_be(length: int, kind: type[FrameError]) -> None:
    stream, good = FrameStream(), submit().encode()
    assert stream.feed(good + good[:10]) == [good]
    assert stream.feed(good[10:] + struct.pack(">I", length)) == [good]
    assert type(stream.error) is kind
    assert stream.feed(good) == []


def test_every_error_says_whether_the_connection_closes() -> None:
    kinds = [
        kind
        for kind in vars(error_classes).values()
        if isinstance(kind, type) and issubclass(kind, SgipError)
    ]
    closing = {kind for kind in kinds if kind.closes}
    assert len(kinds) == 16
    assert closing == {
        FrameError,
        TruncatedFrame,
        OverlongFrame,
        UnknownCommand,
        BodyError,
        TruncatedBody,
        OverlongBody,
    }
    assert "SgipError" in (error_classes.__doc__ or "")
    assert all(kind.__name__ in (error_classes.__doc__ or "") for kind in kinds)


def test_only_commands_have_an_encoding() -> None:
    with pytest.raises(NotImplementedError):
        Command(SEQUENCE).encode()
    assert TraceResp(SEQUENCE).count == 0
    assert decode(TraceResp(SEQUENCE).encode()) == TraceResp(SEQUENCE)


def test_results_have_texts() -> None:
    assert result_text(0) == "No error"
    assert result_text(88) == "Throttled"
    assert result_text(200) == "200"
