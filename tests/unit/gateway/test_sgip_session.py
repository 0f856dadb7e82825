"""A connection between an SP and an SMG: logins, windows, requests, refusals, endings."""

import struct

import pytest

from gateway.sgip import (
    Answered,
    Bind,
    BindRefused,
    BindResp,
    Bound,
    Closed,
    CloseReason,
    Command,
    Duplicates,
    DuplicateSequence,
    FieldError,
    Ignored,
    Limits,
    NotBound,
    Phase,
    Report,
    SequenceInUse,
    Session,
    SessionError,
    Side,
    Submit,
    SubmitResp,
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
    WindowFull,
)
from tests.unit.gateway.sgip_sessions import SP_BIND, bound, exchange, give, login, sent, smg, sp
from tests.unit.gateway.sgip_support import NODE, TIME, deliver, report, submit

SMG_BIND = Bind((3010000001, TIME, 0), 2, "smg", "secret")


def test_both_ends_are_bound_by_a_login() -> None:
    one, other = sp(), smg()
    assert one.capacity == other.capacity == 0
    with pytest.raises(NotBound):
        one.send(submit(), 0)
    with pytest.raises(NotBound):
        one.unbind((NODE, TIME, 9), 0)
    assert exchange(one, other) == ([Bound(SP_BIND)], [Bound(SP_BIND)])
    assert one.capacity == other.capacity == 32


def test_the_gateway_connects_to_an_sp_in_the_same_way() -> None:
    gateway = Session(Side.SMG, 0, bind=SMG_BIND)
    listener = Session(Side.SP, 0, login=login)
    assert exchange(gateway, listener) == ([Bound(SMG_BIND)], [Bound(SMG_BIND)])
    gateway.send(deliver(1), 0, "mo")
    gateway.send(report(2), 0)
    user = UserRpt((3010000001, TIME, 3), "10690001", "8613012345678", 1)
    gateway.send(user, 0)
    assert exchange(gateway, listener) == ([], [deliver(1), report(2), user])
    for request in (deliver(1), report(2), user):
        listener.respond(request)
    answers, _ = exchange(gateway, listener)
    assert [event.context for event in answers if isinstance(event, Answered)] == ["mo", None, None]


@pytest.mark.parametrize(
    ("bind", "side", "result"),
    [
        (Bind((1, 2, 3), 1, "sp", "wrong"), Side.SMG, 1),
        (Bind((1, 2, 3), 2, "sp", "secret"), Side.SMG, 4),
        (Bind((1, 2, 3), 1, "smg", "secret"), Side.SP, 4),
        (Bind((1, 2, 3), 2, "smg", "wrong"), Side.SP, 1),
    ],
)
def test_a_login_that_is_wrong_is_answered_and_closed(bind: Bind, side: Side, result: int) -> None:
    one, other = sp(bind), Session(side, 0, login=login)
    expected = [BindRefused(result), Closed(CloseReason.REFUSED, None, ())]
    assert exchange(one, other) == (expected, expected)
    assert one.phase is other.phase is Phase.CLOSED


def test_the_trace_port_takes_its_login_type() -> None:
    one, other = sp(Bind((1, 2, 3), 11, "sp", "secret")), smg()
    exchange(one, other)
    trace = Trace((1, 2, 4), (NODE, TIME, 1), "8613012345678")
    one.send(trace, 0)
    assert exchange(one, other)[1] == [trace]
    response = TraceResp(trace.sequence, (TraceHop(0, "101010", "260101000000", ""),))
    other.respond_trace(response)
    assert exchange(one, other)[0] == [Answered(response, None, trace.encode())]
    one.connection_lost(0)
    one.respond_trace(response)  # to nobody
    assert one.data_to_send() == b""


def test_a_session_binds_or_checks_a_login() -> None:
    with pytest.raises(ValueError, match="login"):
        Session(Side.SP, 0)
    with pytest.raises(ValueError, match="login"):
        Session(Side.SP, 0, bind=SP_BIND, login=login)


def test_a_second_login_is_refused_and_the_connection_stays() -> None:
    one, other = bound()
    for session, bind in ((other, SP_BIND), (one, SMG_BIND)):
        (ignored,) = give(session, bind)
        assert isinstance(ignored, Ignored)
        assert isinstance(ignored.error, SessionError)
        assert sent(session) == [BindResp(bind.sequence, 2)]
        assert session.phase is Phase.BOUND


def test_the_end_that_connects_does_not_serve_logins() -> None:
    one = sp()
    one.data_to_send()
    (ignored,) = give(one, SMG_BIND)
    assert isinstance(ignored, Ignored)
    assert isinstance(ignored.error, UnservedCommand)
    assert sent(one) == [BindResp(SMG_BIND.sequence, 7)]


def test_responses_are_matched_in_any_order() -> None:
    one, other = bound()
    for counter in (1, 2, 3):
        one.send(submit(counter), 0, f"context {counter}")
    assert (one.capacity, one.waiting) == (29, 3)
    requests = other.receive(one.data_to_send(), 0)
    assert requests == [submit(1), submit(2), submit(3)]
    for request, result in zip(reversed(requests), (0, 11, 33), strict=True):
        assert isinstance(request, Submit)
        other.respond(request, result)
    assert one.receive(other.data_to_send(), 0) == [
        Answered(SubmitResp((NODE, TIME, 3), 0), "context 3", submit(3).encode()),
        Answered(SubmitResp((NODE, TIME, 2), 11), "context 2", submit(2).encode()),
        Answered(SubmitResp((NODE, TIME, 1), 33), "context 1", submit(1).encode()),
    ]
    assert (one.capacity, one.waiting) == (32, 0)


def test_a_kept_frame_is_sent_as_it_is() -> None:
    one, _ = bound()
    one.send(submit().encode(), 0, "kept")
    assert one.data_to_send() == submit().encode()
    answered = give(one, SubmitResp(submit().sequence))
    assert answered == [Answered(SubmitResp(submit().sequence), "kept", submit().encode())]


def test_the_window_is_kept() -> None:
    one, _ = bound(limits=Limits(window=2))
    one.send(submit(1), 0)
    with pytest.raises(SequenceInUse):
        one.send(submit(1), 0)
    one.send(submit(2), 0)
    assert one.capacity == 0
    with pytest.raises(WindowFull):
        one.send(submit(3), 0)
    give(one, SubmitResp(submit(1).sequence))
    one.send(submit(3), 0)
    assert len(sent(one)) == 3


def test_a_packet_beyond_2_kb_is_not_sent_unless_asked_for() -> None:
    users = tuple(f"86130{n:08d}" for n in range(100))
    one, _ = bound()
    with pytest.raises(FieldError):
        one.send(submit(users=users), 0)
    one, other = bound(limits=Limits(packet=4096))
    one.send(submit(users=users), 0)
    assert exchange(one, other)[1] == [submit(users=users)]


@pytest.mark.parametrize(
    "response",
    [
        SubmitResp((NODE, TIME, 99)),  # a sequence that was not sent
        BindResp((NODE, TIME, 1)),  # another command's
        UnbindResp((NODE, TIME, 1)),
        BindResp(SP_BIND.sequence),  # a second time
    ],
)
def test_a_response_that_nothing_waits_for_is_ignored(response: Command) -> None:
    one, _ = bound()
    one.send(submit(1), 0)
    assert give(one, response) == [Ignored(response.encode(), None)]
    assert one.waiting == 1
    assert one.phase is Phase.BOUND


def test_the_response_to_bind_must_be_one() -> None:
    one = sp()
    for response in (UnbindResp(SP_BIND.sequence), BindResp((9, 9, 9))):
        assert give(one, response) == [Ignored(response.encode(), None)]
    assert one.phase is Phase.BINDING
    assert give(one, BindResp(SP_BIND.sequence)) == [Bound(SP_BIND)]


def test_a_response_between_gateways_is_ignored() -> None:
    one, _ = bound()
    frame = struct.pack(">5I9x", 29, 0x80000006, 1, 2, 3)
    (ignored,) = one.receive(frame, 0)
    assert isinstance(ignored, Ignored)
    assert isinstance(ignored.error, UnservedCommand)
    assert one.phase is Phase.BOUND


def test_a_broken_response_closes() -> None:
    one, _ = bound()
    one.send(submit(1), 0, "first")
    one.data_to_send()
    (closed,) = one.receive(struct.pack(">5IB", 21, 0x80000003, NODE, TIME, 1, 0), 0)
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, TruncatedBody)
    assert closed.unanswered == (("first", submit(1).encode()),)
    assert one.data_to_send() == b""


def test_a_command_of_the_other_role_is_refused_with_a_result() -> None:
    one, other = bound()
    give(one, submit())
    assert sent(one) == [SubmitResp(submit().sequence, 7)]
    give(other, deliver(), report())
    assert [getattr(response, "result", None) for response in sent(other)] == [7, 7]
    gateways = struct.pack(">5I50x", 70, 6, 1, 2, 3)
    (ignored,) = other.receive(gateways, 0)
    assert isinstance(ignored, Ignored)
    assert other.data_to_send()[:8] == struct.pack(">2I", 29, 0x80000006)
    assert one.phase is other.phase is Phase.BOUND


def test_reports_come_over_the_connection_that_the_sp_opened() -> None:
    one, other = bound()
    other.send(report(1), 0)
    other.send(deliver(2), 0)
    assert exchange(one, other)[0] == [report(1), deliver(2)]
    one.respond(report(1))
    one.respond(deliver(2), 11)
    assert [
        event.response.result  # type: ignore[attr-defined]
        for event in exchange(one, other)[1]
        if isinstance(event, Answered)
    ] == [0, 11]


def test_a_command_before_the_login_is_refused_and_closes() -> None:
    other = smg()
    events = give(other, submit(1), submit(2))
    assert [type(event) for event in events] == [Ignored, Closed]
    assert events[1].reason is CloseReason.NOT_BOUND  # type: ignore[union-attr]
    assert sent(other) == [SubmitResp(submit(1).sequence, 1)]
    assert give(other, submit(3)) == []


def test_a_gateway_that_does_not_await_its_own_answer_is_told_to_come_again() -> None:
    one = sp()
    one.data_to_send()
    (ignored,) = give(one, report())
    assert isinstance(ignored, Ignored)
    assert isinstance(ignored.error, NotBound)
    assert [response.result for response in sent(one)] == [11]  # type: ignore[attr-defined]
    assert give(one, BindResp(SP_BIND.sequence), report()) == [Bound(SP_BIND), report()]


def test_a_wrong_value_is_answered_and_stays() -> None:
    _, other = bound()
    frame = submit().encode()
    nobody = struct.pack(">I", len(frame) - 21) + frame[4:62] + b"\0" + frame[84:]
    (ignored,) = other.receive(nobody, 0)
    assert isinstance(ignored, Ignored)
    assert isinstance(ignored.error, FieldError)
    assert sent(other) == [SubmitResp(submit().sequence, 5)]
    assert give(other, submit()) == [submit()]


def test_a_wrong_length_is_answered_and_closes() -> None:
    one, _ = bound()
    frame = report().encode()
    as_deliver = frame[:7] + b"\4" + frame[8:]  # seen in the field
    (event,) = one.receive(as_deliver, 0)
    assert isinstance(event, Closed)
    assert event.reason is CloseReason.PROTOCOL
    assert isinstance(event.error, TruncatedBody)
    assert [(r.command, r.result) for r in sent(one)] == [("Deliver_Resp", 8)]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (struct.pack(">5I", 20, 0x99, 1, 2, 3), UnknownCommand),
        (struct.pack(">5I", 20, 0x80000099, 1, 2, 3), UnknownCommand),
        (b"GET / HTTP/1.1\r\n\r\n", SessionError),
        (bytes(64), TruncatedFrame),
    ],
)
def test_what_is_no_sgip_closes_without_an_answer(data: bytes, kind: type[Exception]) -> None:
    _, other = bound()
    events = give(other, submit()) + other.receive(data, 0)
    assert events[0] == submit()
    assert isinstance(events[-1], Closed)
    assert events[-1].reason is CloseReason.PROTOCOL
    assert isinstance(events[-1].error, kind) or kind is SessionError
    assert other.data_to_send() == b""
    assert other.receive(submit().encode(), 0) == []


def test_a_command_that_comes_again_is_taken_once() -> None:
    _, other = bound()
    assert give(other, submit(1)) == [submit(1)]
    assert give(other, submit(1)) == [Ignored(submit(1).encode(), None)]
    assert sent(other) == []  # the response is still to come
    other.respond(submit(1), 24)
    assert sent(other) == [SubmitResp(submit(1).sequence, 24)]
    assert give(other, submit(1)) == [Ignored(submit(1).encode(), None)]
    assert sent(other) == [SubmitResp(submit(1).sequence, 24)]


def test_another_command_under_a_used_sequence_is_refused() -> None:
    _, other = bound()
    give(other, submit(1))
    (ignored,) = give(other, submit(1, content=b"other"))
    assert isinstance(ignored, Ignored)
    assert isinstance(ignored.error, DuplicateSequence)
    assert sent(other) == [SubmitResp(submit(1).sequence, 9)]


@pytest.mark.parametrize("result", [11, 32, 33, 88])
def test_a_command_that_was_told_to_come_again_is_taken_again(result: int) -> None:
    _, other = bound()
    give(other, submit(1))
    other.respond(submit(1), result)
    assert give(other, submit(1)) == [submit(1)]


def test_a_command_that_comes_again_over_another_connection_is_taken_once() -> None:
    shared = Duplicates()
    first, second = smg(duplicates=lambda _: shared), smg(duplicates=lambda _: shared)
    give(first, SP_BIND)
    give(second, SP_BIND)
    assert give(first, submit(1)) == [submit(1)]
    first.connection_lost(1)
    first.data_to_send()
    first.respond(submit(1))  # to nobody, but it is remembered
    assert first.data_to_send() == b""
    second.data_to_send()
    assert give(second, submit(1)) == [Ignored(submit(1).encode(), None)]
    assert sent(second) == [SubmitResp(submit(1).sequence, 0)]


def test_the_memory_of_sequences_is_bounded_and_forgets_the_oldest() -> None:
    known = Duplicates(capacity=10)
    frames = [submit(counter).encode() for counter in range(40)]
    for frame in frames:
        assert known.admit(frame) is None
        known.answered(frame[8:20], frame[19] % 2)
    assert [known.admit(frame) for frame in frames[-10:]] == [0, 1] * 5
    assert known.admit(frames[0]) is None
    known.answered(b"never seen..", 0)
    known.answered(b"never seen..", 24)
    known.answered(frames[-1][8:20], 11)
    assert known.admit(frames[-1]) is None


def test_an_orderly_end() -> None:
    one, other = bound()
    one.send(submit(1), 0)
    one.unbind((NODE, TIME, 2), 0)
    assert one.capacity == 0
    with pytest.raises(NotBound):
        one.send(submit(3), 0)
    assert other.receive(one.data_to_send(), 0) == [submit(1)]
    other.send(report(1), 0)  # may still come
    other.respond(submit(1))
    assert [type(event) for event in one.receive(other.data_to_send(), 0)] == [Report, Answered]
    one.respond(report(1))
    ended = Closed(CloseReason.UNBOUND, None, ())
    events = exchange(one, other)
    assert events[0] == [ended]
    assert [type(event) for event in events[1]] == [Closed]


def test_the_response_to_a_late_report_goes_before_unbind() -> None:
    one, other = bound()
    other.send(report(1), 0)
    one.receive(other.data_to_send(), 0)
    one.respond(report(1))
    one.unbind((NODE, TIME, 2), 0)
    assert [type(event) for event in exchange(one, other)[1]] == [Answered, Closed]


def test_unbind_from_the_peer_gives_back_what_was_not_answered() -> None:
    one, _ = bound()
    one.send(submit(1), 0, "a")
    one.send(submit(2), 0, "b")
    one.data_to_send()
    (closed,) = give(one, Unbind((1, 2, 3)))
    assert closed == Closed(
        CloseReason.UNBOUND, None, (("a", submit(1).encode()), ("b", submit(2).encode()))
    )
    assert sent(one) == [UnbindResp((1, 2, 3))]


def test_an_unbind_response_that_was_not_asked_for_is_ignored() -> None:
    one, _ = bound()
    one.send(submit(1), 0)
    one.unbind((NODE, TIME, 2), 0)
    response = UnbindResp((NODE, TIME, 2))
    assert give(one, response) == [Ignored(response.encode(), None)]  # Unbind was not sent yet
    give(one, SubmitResp(submit(1).sequence))
    wrong = BindResp((NODE, TIME, 2))
    assert give(one, wrong) == [Ignored(wrong.encode(), None)]
    assert give(one, response) == [Closed(CloseReason.UNBOUND, None, ())]


@pytest.mark.parametrize("answered", [(NODE, TIME + 1, 2), (0, 0, 0)])
def test_any_unbind_response_answers_unbind(answered: tuple[int, int, int]) -> None:
    """Some gateways put their own time into its sequence; only one Unbind is ever sent."""
    one, _ = bound()
    one.unbind((NODE, TIME, 2), 0)
    assert sent(one) == [Unbind((NODE, TIME, 2))]
    assert give(one, UnbindResp(answered)) == [Closed(CloseReason.UNBOUND, None, ())]
    assert one.phase is Phase.CLOSED
