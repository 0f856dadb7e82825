"""What a session does when time passes; the clock is a number that the test counts up."""

import pytest

from gateway.sgip import (
    Answered,
    BindResp,
    Closed,
    CloseReason,
    Idle,
    Limits,
    Phase,
    Session,
    Side,
    SubmitResp,
    TimedOut,
    Unbind,
    decode,
)
from tests.unit.gateway.sgip_sessions import SP_BIND, bound, exchange, give, login, sent, smg, sp
from tests.unit.gateway.sgip_support import NODE, TIME, report, submit


def test_an_unanswered_command_is_sent_again_under_the_same_sequence() -> None:
    one, other = bound()
    one.send(submit(1), 10, "first")
    one.send(submit(2), 20, "second")
    frames = one.data_to_send()
    assert one.next_tick() == 40
    assert one.tick(39.9) == []
    assert one.data_to_send() == b""
    assert one.tick(40) == []
    assert one.data_to_send() == submit(1).encode()
    assert one.next_tick() == 50
    one.tick(50)
    assert one.data_to_send() == submit(2).encode()
    assert frames == submit(1).encode() + submit(2).encode()
    assert give(one, SubmitResp(submit(1).sequence), now=51) == [
        Answered(SubmitResp(submit(1).sequence), "first", submit(1).encode())
    ]
    assert one.next_tick() == 80
    assert other.phase is Phase.BOUND


def test_a_command_that_is_never_answered_is_given_up() -> None:
    one, _ = bound(limits=Limits(resends=2, response_timeout=30))
    one.send(submit(1), 0, "context")
    sent = 0
    for now in (30, 60, 90):
        give(one, report(now), now=now - 1)  # the peer is there, but does not answer this
        assert one.next_tick() == now
        events = one.tick(now)
        sent += one.data_to_send().count(submit(1).encode())
    assert sent == 3  # the first, and two more
    assert events == [TimedOut("context", submit(1).encode())]
    assert one.phase is Phase.BOUND
    assert one.capacity == 32


def test_a_peer_that_says_nothing_at_all_is_left() -> None:
    one, _ = bound(limits=Limits(resends=1))
    one.send(submit(1), 1, "first")
    one.tick(31)
    one.send(submit(2), 40, "second")
    assert one.tick(61) == [
        TimedOut("first", submit(1).encode()),
        Closed(CloseReason.SILENT, None, (("second", submit(2).encode()),)),
    ]
    assert one.next_tick() is None
    assert one.tick(100) == []


def test_what_was_sent_again_is_given_back_in_the_order_of_its_first_time() -> None:
    one, _ = bound()
    one.send(submit(1), 0, "a")
    one.send(submit(2), 10, "b")
    one.tick(30)  # sends the first again, so that it is the last to be overdue
    (closed,) = one.connection_lost(31)
    assert isinstance(closed, Closed)
    assert [context for context, _ in closed.unanswered] == ["a", "b"]


def test_a_server_closes_an_idle_connection_after_its_time() -> None:
    one, other = bound()
    one.send(submit(1), 5)
    other.receive(one.data_to_send(), 5)
    other.respond(submit(1))
    assert other.next_tick() == 65
    assert other.tick(64.9) == []
    assert other.tick(65) == [Closed(CloseReason.IDLE, None, ())]


def test_the_end_that_connected_is_told_once_that_nothing_happens() -> None:
    one, other = bound(limits=Limits(idle_timeout=50))
    assert one.next_tick() == 50
    assert one.tick(50) == [Idle()]
    assert one.next_tick() is None
    assert one.tick(1000) == []
    give(one, report(1), now=1001)
    assert one.tick(1051) == [Idle()]
    one.unbind((NODE, TIME, 2), 1051)
    events = exchange(one, other, 1051)
    assert events[0] == [Closed(CloseReason.UNBOUND, None, ())]


def test_what_waits_for_a_response_is_not_idle() -> None:
    one, _ = bound(limits=Limits(idle_timeout=10))
    one.send(submit(1), 0)
    assert one.tick(29) == []
    one.tick(30)
    give(one, SubmitResp(submit(1).sequence), now=31)
    assert one.next_tick() == 41


@pytest.mark.parametrize("answered", [True, False])
def test_unbind_waits_for_responses_but_not_for_ever(answered: bool) -> None:
    one, _ = bound(limits=Limits(resends=0))
    one.send(submit(1), 0)
    one.unbind((NODE, TIME, 2), 5)
    one.data_to_send()
    give(one, report(1), now=29)
    if answered:
        give(one, SubmitResp(submit(1).sequence), now=30)
    else:
        assert one.tick(30) == [TimedOut(None, submit(1).encode())]
    assert [command.command for command in sent(one)] == ["Unbind"]
    assert one.next_tick() == 35  # some gateways do not answer, and nothing is in flight
    assert one.tick(34.9) == []
    assert one.tick(35) == [Closed(CloseReason.UNBOUND, None, ())]


def test_a_close_in_place_of_the_answer_to_unbind_is_in_order() -> None:
    one, other = bound()
    for session in (one, other):
        session.unbind((NODE, TIME, 2), 5)
        assert [command.command for command in sent(session)] == ["Unbind"]
        assert session.connection_lost(6) == [Closed(CloseReason.UNBOUND, None, ())]


def test_a_close_before_unbind_was_sent_is_a_lost_connection() -> None:
    one, _ = bound()
    one.send(submit(1), 0, "context")
    one.unbind((NODE, TIME, 2), 5)
    unanswered = (("context", submit(1).encode()),)
    assert one.connection_lost(6) == [Closed(CloseReason.LOST, None, unanswered)]


def test_a_login_that_is_not_answered_ends() -> None:
    one = sp()
    assert one.next_tick() == 30
    assert one.tick(30) == [Closed(CloseReason.SILENT, None, ())]


def test_a_login_that_does_not_come_ends() -> None:
    other = smg()
    assert other.tick(4.9) == []
    assert other.tick(5) == [Closed(CloseReason.NOT_BOUND, None, ())]


@pytest.mark.parametrize(
    ("lost_at", "reason"), [(2, CloseReason.LOST_AFTER_BIND), (6, CloseReason.LOST)]
)
def test_a_close_right_after_the_login_is_a_refused_login(
    lost_at: float, reason: CloseReason
) -> None:
    one, _ = bound()
    assert one.connection_lost(lost_at) == [Closed(reason, None, ())]
    assert one.connection_lost(lost_at) == []


@pytest.mark.parametrize(
    ("unbound_at", "reason"), [(1.9, CloseReason.UNBOUND_AFTER_BIND), (2, CloseReason.UNBOUND)]
)
def test_an_unbind_right_after_the_login_is_a_refused_login(
    unbound_at: float, reason: CloseReason
) -> None:
    one, _ = bound()
    assert give(one, Unbind((1, 2, 3)), now=unbound_at) == [Closed(reason, None, ())]


def test_an_unbind_after_an_answer_or_at_the_other_end_is_in_order() -> None:
    one, other = bound()
    one.send(submit(1), 0)
    give(one, SubmitResp(submit(1).sequence), now=1)
    for session in (one, other):
        assert give(session, Unbind((1, 2, 3)), now=1) == [Closed(CloseReason.UNBOUND, None, ())]


def test_a_close_after_traffic_or_at_the_other_end_is_a_lost_connection() -> None:
    one, other = bound()
    one.send(submit(1), 0)
    give(one, SubmitResp(submit(1).sequence), now=1)
    for session in (one, other, sp()):
        (closed,) = session.connection_lost(1)
        assert isinstance(closed, Closed)
        assert closed.reason is CloseReason.LOST


def test_the_same_bytes_go_over_the_next_connection() -> None:
    one, _ = bound()
    one.send(submit(1), 0, "context")
    one.data_to_send()
    (closed,) = one.connection_lost(3)
    assert isinstance(closed, Closed)
    again = Session(Side.SP, 4, bind=SP_BIND)
    give(again, BindResp(SP_BIND.sequence), now=4)
    again.data_to_send()
    for context, frame in closed.unanswered:
        again.send(frame, 4, context)
    assert again.data_to_send() == submit(1).encode()
    assert decode(closed.unanswered[0][1]) == submit(1)
    assert login(SP_BIND) == 0
