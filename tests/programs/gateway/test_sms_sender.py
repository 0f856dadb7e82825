"""Sender: from pending to a gateway's socket, and everything a gateway may do to it."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from gateway import presence, sgip
from gateway.directory import Directory, Gateway
from gateway.lifecycle import keys, store
from gateway.lifecycle.messages import ClaimedMessage, Member, Mt, NewSubmit
from gateway.models import SmsGateway
from gateway.net import Connection, NetThread
from gateway.receiver.receiver import SmsReceiver
from gateway.sender import gateway_worker
from gateway.sender.link import Link
from gateway.sender.packing import Counters, Pace, make_packs, make_submits
from gateway.sender.sender import SmsSender
from gateway.simulator.smg import BEHAVIOURS, Behaviour, ReportTime
from msgplatform.core.rates.backoff import Backoff
from msgplatform.core.servers.private_server import free_port
from tests.support.children import child
from tests.support.sgip_support import ClosingSmg, LeavingSmg, MuteSmg, OwnTimeSmg, UnbindingSmg
from tests.support.sms_net_support import (
    SP_NUMBER,
    WAIT,
    Smg,
    accept,
    ended,
    gateway,
    lasting_reports,
    mt,
    running,
    turning,
    until,
)

__all__ = ["lasting_reports"]

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("sms_redis", "work_redis", "lasting_reports"),
]

LONG = "长" * 150  # three parts
# A process with nothing else.
SENDER = """
from gateway.sender.sender import SmsSender
sender = SmsSender()
sender.start()
while True:
    sender.turn()
"""
OPERATOR = timezone(timedelta(hours=8))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "accepted.log"


def on_submit_link(**fields: Any) -> Behaviour:
    """Reports come over our own connections: no receiver is needed."""
    return Behaviour(on_submit_link=True, **fields)


def accepted_once(smg: Smg) -> Counter[tuple[str, str]]:
    """(user, part) that got Result 0; fails when one did under two sequences."""
    sequences = Counter((line[1], line[2]) for line in smg.lines() if line[3] == "0")
    assert set(sequences.values()) <= {1}, "accepted twice"
    return sequences


def finals(ids: list[str]) -> Counter[str]:
    return Counter(found.final for found in ended(ids).values())


def test_one_message_end_to_end(log: Path, sms_redis: Any) -> None:
    receiver, sender = SmsReceiver("127.0.0.1", 0), SmsSender()
    with running(receiver, sender):
        row = gateway(free_port())
        receiver.turn()
        with Smg(log, listener=("127.0.0.1", receiver.port), port=row.port) as smg:
            ids = accept(mt(1, [row.pk]))
            until(lambda: ended(ids), sender, receiver)
            (found,) = ended(ids).values()
            assert found.final == "delivered"
            assert [line[1:] for line in smg.lines()] == [[found.mt.user_number, "1/1", "0"]]
            up = {("submit", ""), ("report", "")}
            until(lambda: {(li.kind, li.problem) for li in presence.live()} == up, sender, receiver)


@pytest.mark.parametrize(
    "how",
    [
        "happy", "slow", "early-reports", "duplicating", "dropping", "garbage", "throttling",
    ],
)  # fmt: skip
def test_every_message_is_accepted_once_and_delivered(log: Path, how: str) -> None:
    """Whatever the gateway's manners: no (user, part) is taken under two sequences."""
    receiver, sender = SmsReceiver("127.0.0.1", 0), SmsSender()
    row = gateway(free_port(), connections=2, window=8)
    with turning(receiver, sender):
        until(lambda: receiver.port)
        listener = ("127.0.0.1", receiver.port)
        with Smg(log, BEHAVIOURS[how], listener=listener, port=row.port) as smg:
            ids = accept(*(mt(n, [row.pk]) for n in range(120)))
            until(lambda: len(ended(ids)) == 120)
            assert finals(ids) == {"delivered": 120}
            assert len(accepted_once(smg)) == 120


def busy_after_the_cut(smg: Smg, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway is over its flow limit from the moment at which it cuts a link: the link may be
    back before a test has seen that it was cut."""
    drop, busy = Connection.drop, replace(smg.simulator.behaviour, drop_after=None, per_second=0)

    def cut(connection: Connection) -> None:
        smg.simulator.behaviour = busy
        drop(connection)

    monkeypatch.setattr(Connection, "drop", cut)


def test_a_busy_answer_to_a_repeat_starts_no_second_submit(
    log: Path, sms_redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway took it, cut the link, and is over its flow limit when the same bytes come."""
    sender, silent = SmsSender(), ReportTime.NEVER
    behaviour = on_submit_link(drop_after=1, limit_first=True, reports=silent)
    with Smg(log, behaviour) as smg, running(sender):
        busy_after_the_cut(smg, monkeypatch)
        row = gateway(smg.port, response_timeout=5.0, resends=100)
        first, simulator = mt(1, [row.pk]), smg.simulator
        accept(first)
        until(lambda: smg.lines(), sender)
        until(lambda: simulator.throttled_repeats, sender)
        until(lambda: sender.workers[row.pk].pace.is_paused, sender)
        until(lambda: not sender.workers[row.pk].is_busy, sender)
        assert sms_redis.zcard(keys.scheduled(row.pk)) == 0, "it gets no new sequence"
        simulator.behaviour = on_submit_link(limit_first=True)

        def delivered() -> bool:
            _hasten(sms_redis, row.pk)
            return bool(ended([first.id]))

        until(delivered, sender)
        assert finals([first.id]) == {"delivered": 1}
        assert len(smg.lines()) == 1


def test_an_overloaded_gateway_takes_each_message_once(log: Path, sms_redis: Any) -> None:
    sender = SmsSender()  # without Reports, which would say what the responses did not
    with Smg(log, BEHAVIOURS["overloaded"]) as smg, running(sender):
        row = gateway(smg.port, connections=2, window=8, response_timeout=5.0, resends=100)
        ids = accept(*(mt(n, [row.pk], report_flag=2) for n in range(120)))

        def all_ended() -> bool:
            _hasten(sms_redis, row.pk)
            return len(ended(ids)) == len(ids)

        until(all_ended, sender)
        assert finals(ids) == {"accepted": 120}
        assert len(accepted_once(smg)) == 120
        assert smg.simulator.throttled_repeats


def test_errors_and_submits_of_a_gateway_that_is_switched_off_still_count(
    log: Path, sms_redis: Any
) -> None:
    sender = SmsSender()
    with Smg(log, on_submit_link(reports=ReportTime.NEVER)) as smg, running(sender):
        row = gateway(smg.port)
        accept(mt(1, [row.pk]))
        until(lambda: sender.heartbeat.done == 1, sender)
        (damaged,) = accept(mt(2, [row.pk]))
        sms_redis.hset(keys.mt(int(damaged)), "msg", "{")
        until(lambda: sender.heartbeat.failed == 1, sender)
        row.enabled = False
        row.save()
        until(lambda: not presence.live(), sender)
        assert (sender.heartbeat.done, sender.heartbeat.failed) == (1, 1)


def test_busy_to_each_repeat_ends_as_unknown(
    log: Path, sms_redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender, silent = SmsSender(), ReportTime.NEVER
    behaviour = on_submit_link(drop_after=1, limit_first=True, reports=silent)
    with Smg(log, behaviour) as smg, running(sender):
        busy_after_the_cut(smg, monkeypatch)
        row = gateway(smg.port, response_timeout=5.0, resends=1)
        ids = accept(mt(1, [row.pk]))
        until(lambda: smg.lines(), sender)

        def has_ended() -> bool:
            _hasten(sms_redis, row.pk)
            return bool(ended(ids))

        until(has_ended, sender)
        (found,) = ended(ids).values()
        assert (found.final, found.error) == ("unknown", "no answer")
        # After the link was cut, and once more; only once if one of them was late.
        assert smg.simulator.throttled_repeats in (1, 2)


def test_a_late_busy_answer_is_no_answer_and_slows_down() -> None:
    """The same bytes may have been written again meanwhile."""
    directory = Directory()
    row = gateway(1)
    directory.refresh(at_once=True)
    link = Link(directory.known.gateways[row.pk], 1, SmsSender().arrivals, threading.Event())
    for result, verdict in ((0, "accepted"), *((busy, "unanswered") for busy in (11, 32, 33, 88))):
        late = sgip.SubmitResp((3010099999, 1121131500, 7), result).encode()
        link.on_events(Mock(), [sgip.Ignored(late, None)])
        (answer,) = link.take()
        assert (answer.name, answer.verdict) == ("7:1121131500", verdict)
        pace = Pace(row.pk)
        # The first pause is over at once, the second is not over when it is looked at.
        pace._busy = pauses = Backoff(first=1e-6, factor=1e9, cap=1e30, jitter=0)
        pace.slow_down([answer])
        while pace.is_paused:
            pass
        for _ in range(3):  # answers to what was in flight come in pieces
            pace.slow_down([answer])
        assert pace.is_paused == (result != 0)
        assert pauses.next() == pytest.approx(1e12 if result else 1e-6), "two pauses, two steps"


def test_answers_from_before_a_pause_do_not_shorten_the_next_one() -> None:
    pace = Pace(1)
    busy, accepted = Mock(verdict="unanswered"), Mock(verdict="accepted")
    pace._busy = pauses = Backoff(first=60, factor=2, cap=1e30, jitter=0)
    pace.slow_down([busy])
    pace.slow_down([accepted])
    assert pauses.next() == 120


def test_a_request_that_our_own_connection_refuses_is_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    directory = Directory()
    row = gateway(1)
    directory.refresh(at_once=True)
    link = Link(directory.known.gateways[row.pk], 1, SmsSender().arrivals, threading.Event())
    mo = sgip.Deliver((3010000001, 1121120000, 5), "8613800000000", SP_NUMBER).encode()
    refusal = sgip.DuplicateSequence("its sequence was used")
    link.on_events(Mock(peer="127.0.0.1:8801"), [sgip.Ignored(mo, refusal)])
    (line,) = [r.msg for r in caplog.records if "request_refused" in str(r.msg)]
    assert isinstance(line, dict)
    assert (line["peer"], line["sequence"]) == ("127.0.0.1:8801", "3010000001:1121120000:5")


@pytest.mark.parametrize("busy", [32, 88])
def test_a_busy_answer_is_tried_again(log: Path, busy: int) -> None:
    """One that may be due to a single recipient also halves the pack."""
    sender = SmsSender()
    with Smg(log, on_submit_link(result=busy)) as smg, running(sender):
        row = gateway(smg.port)
        ids = accept(*(mt(n, [row.pk], text="same") for n in range(8)))
        until(lambda: smg.lines(), sender)
        smg.simulator.behaviour = on_submit_link()
        until(lambda: len(ended(ids)) == 8, sender)
        assert finals(ids) == {"delivered": 8}
        sizes = set(Counter(line[0] for line in smg.lines()).values())
        assert max(sizes) == 8
        assert (len(sizes) > 1) == (busy == 32)


def test_one_text_for_many_shares_submits_and_long_ones_are_parts(log: Path) -> None:
    sender = SmsSender()
    with Smg(log, on_submit_link()) as smg, running(sender):
        row = gateway(smg.port)
        ids = accept(*(mt(n, [row.pk], text="same") for n in range(200)))
        ids += accept(*(mt(n, [row.pk], text=LONG) for n in range(200, 230)))
        until(lambda: len(ended(ids)) == 230, sender)
        assert finals(ids) == {"delivered": 230}
        taken = accepted_once(smg)
        assert Counter(part for _, part in taken) == {"1/1": 200, "1/3": 30, "2/3": 30, "3/3": 30}
        short = {line[0] for line in smg.lines() if line[2] == "1/1"}
        assert len(short) < 50, "84 users fit in a Submit"


def test_no_counter_is_given_twice(sms_redis: Any) -> None:
    """A sender reserves a thousand at once, and leaves out those that are too few for Submits."""
    first, second = Counters(), Counters()
    counts = [(first, 3), (second, 2000), (first, 996), (first, 0), (first, 2), (second, 1)]
    taken = [number for counters, count in counts for number in counters.take(count)]
    assert len(set(taken)) == len(taken) == 3002
    assert sms_redis.get(keys.SEQNO) == b"5000"


def packed(row: SmsGateway, *messages: Mt) -> list[sgip.Submit]:
    """The Submits that carry these messages, as they are written."""
    known = Gateway(row, row.pk, 3010099999, (), "", "")
    claims = [ClaimedMessage(message, (), 0, 0) for message in messages]
    made = make_submits(make_packs(claims, known), known, Counters())
    found = [sgip.decode(submit.frame) for submit in made]
    return [command for command in found if isinstance(command, sgip.Submit)]


def test_who_pays_is_named_unless_several_recipients_do() -> None:
    row = gateway(1)
    several = [mt(n, [row.pk], text="same", charge_number="") for n in range(2)]
    alone = mt(2, [row.pk], charge_number="")
    ours = mt(3, [row.pk], charge_number="0" * 21)
    payers = {submit.user_numbers: submit.charge_number for submit in packed(row, *several, alone)}
    assert payers == {
        tuple(message.user_number for message in several): "",
        (alone.user_number,): alone.user_number,
    }
    (submit,) = packed(row, ours)
    assert submit.charge_number == ours.charge_number


def test_a_gateway_may_allow_more_users_a_submit_than_usual() -> None:
    """Of a short text; a packet has at most 2 KB all the same."""
    row = gateway(1, users_per_submit=100)
    for text, most in (("short", 90), ("长" * 70, 84)):
        found = packed(row, *(mt(n, [row.pk], text=text) for n in range(200)))
        assert [submit.user_count for submit in found] == [most, most, 200 - 2 * most]
        assert max(len(submit.encode()) for submit in found) <= sgip.MAX_PACKET


def test_a_window_is_never_exceeded(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sender = SmsSender()
    pump, windows = Link._pump, list[int]()

    def watched(link: Link) -> None:
        pump(link)
        windows.extend(connection.session.waiting for connection in link.bound_since)

    monkeypatch.setattr(Link, "_pump", watched)
    behaviour = on_submit_link(response_delay=0.05)
    with Smg(log, behaviour) as smg, running(sender):
        row = gateway(smg.port, window=3, connections=2)
        ids = accept(*(mt(n, [row.pk]) for n in range(40)))
        until(lambda: len(ended(ids)) == 40, sender)
        assert max(windows) == 3


def test_a_busy_gateway_is_given_pauses(log: Path) -> None:
    """A queue that is longer than what it takes is not thrown at it again and again."""
    sender = SmsSender()
    with Smg(log, on_submit_link(per_second=60)) as smg, running(sender):
        row = gateway(smg.port)
        ids = accept(*(mt(n, [row.pk]) for n in range(150)))
        until(lambda: len(ended(ids)) == 150, sender, seconds=120)
        assert finals(ids) == {"delivered": 150}
        assert len(accepted_once(smg)) == 150
        refused = sum(1 for line in smg.lines() if line[3] == "88")
        assert refused < 3 * 150, "each was refused several times"


def test_reports_on_the_submit_link_while_responses_are_late(log: Path) -> None:
    sender = SmsSender()
    behaviour = on_submit_link(response_delay=0.3, reports=ReportTime.BEFORE)
    with Smg(log, behaviour) as smg, running(sender):
        row = gateway(smg.port)
        ids = accept(*(mt(n, [row.pk]) for n in range(20)))
        until(lambda: len(ended(ids)) == 20, sender)
        assert finals(ids) == {"delivered": 20}
        until(lambda: not sender.workers[row.pk].is_busy, sender)
        until(lambda: smg.simulator.outbox.answers == {0: 20}, sender)


def test_expired_and_impossible_ones_end_and_hold_up_nobody(log: Path) -> None:
    sender = SmsSender()
    with Smg(log, on_submit_link()) as smg, running(sender):
        row = gateway(smg.port)
        late = accept(mt(1, [row.pk], expire_at=time.time() - 1))
        poison = accept(mt(2, [row.pk], corp_id="too long for its field"))
        other = accept(mt(3, [row.pk], text="a" * 40_000))
        good = accept(*(mt(n, [row.pk]) for n in range(4, 10)))
        ids = late + poison + other + good
        until(lambda: len(ended(ids)) == len(ids), sender)
        assert finals(late) == {"expired": 1}
        assert finals(poison + other) == {"failed": 2}
        assert finals(good) == {"delivered": 6}


def test_who_shares_a_submit_with_one_that_has_ended_goes_without_it(
    log: Path, sms_redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, not when the lease is over."""
    monkeypatch.setattr(gateway_worker, "LEASE_SECONDS", 3600.0)  # over for nobody
    sender, submit, ending = SmsSender(), store.submit, list[str]()

    def late(*arguments: Any) -> list[NewSubmit]:
        while ending:
            sms_redis.hset(keys.mt(int(ending.pop())), "final", "failed")
        return submit(*arguments)

    monkeypatch.setattr(store, "submit", late)
    with Smg(log, on_submit_link()) as smg, running(sender):
        row = gateway(smg.port)
        until(lambda: row.pk in sender.workers and sender.workers[row.pk].link.is_up, sender)
        ended_early, *others = ids = [mt(n, [row.pk], text="same") for n in range(3)]
        ending.append(ended_early.id)
        accept(*ids)
        names = [message.id for message in others]
        until(lambda: len(ended(names)) == 2, sender)
        assert {line[1] for line in smg.lines()} == {message.user_number for message in others}


def test_a_refused_pack_is_halved_to_its_members(log: Path) -> None:
    sender = SmsSender()
    with Smg(log, on_submit_link(result=6)) as smg, running(sender):
        row = gateway(smg.port)
        ids = accept(*(mt(n, [row.pk], text="same") for n in range(8)))
        until(lambda: len(ended(ids)) == 8, sender)
        assert {(f.final, f.error) for f in ended(ids).values()} == {("failed", "6")}
        sizes = Counter(Counter(line[0] for line in smg.lines()).values())
        assert sizes[1] == 8, "each was refused alone"


def test_a_gateway_that_never_answers_gets_the_same_bytes_then_unknown(
    log: Path, sms_redis: Any
) -> None:
    sender = SmsSender()
    with Smg(log, BEHAVIOURS["silent"]) as smg, running(sender):
        row = gateway(smg.port, response_timeout=5.0, resends=2)
        ids = accept(mt(1, [row.pk]))
        name = ""

        def repeated() -> bool:
            nonlocal name
            names = sms_redis.smembers(keys.SUBMITED)
            name = next(iter(names), b"").decode() or name
            _hasten(sms_redis, row.pk)
            return bool(ended(ids))

        until(repeated, sender)
        (found,) = ended(ids).values()
        assert (found.final, found.error) == ("unknown", "no answer")
        assert len(smg.lines()) == 1, "the simulator writes a repeated sequence down once"
        assert int(sms_redis.hget(f"{keys.PREFIX}submit:{name}", "tries")) == 3


def _hasten(client: Any, gateway_id: int) -> None:
    """What is due in some seconds is due now, unless a link still waits for it."""
    due = keys.submit_due(gateway_id)
    for name, score in client.zrange(due, 0, -1, withscores=True):
        if score - time.time() < 4.8:  # longer ago than the response may take
            client.zadd(due, {name: 1})


def submitted_by_the_dead(row: SmsGateway, *numbers: int) -> list[str]:
    """A Submit to these users that was remembered by a process which then died."""
    messages = [mt(number, [row.pk], text="dead") for number in numbers]
    ids = accept(*messages)
    store.claim(row.pk, "dead", len(ids), 30)
    directory = Directory()
    directory.refresh(at_once=True)
    claimed = [ClaimedMessage(message, (), 0, 0) for message in messages]
    gateway = directory.known.gateways[row.pk]
    (new,) = make_submits(make_packs(claimed, gateway), gateway, Counters())
    assert isinstance(new, NewSubmit)
    assert new.members == [Member(message.id, message.user_number) for message in messages]
    assert store.submit(row.pk, "dead", [new], 0.0)
    return ids


def test_a_sender_that_was_frozen_writes_no_old_bytes(log: Path, sms_redis: Any) -> None:
    """Another one may have repeated them meanwhile, and sent the message under a new sequence."""
    with Smg(log, on_submit_link()) as smg:
        # So many repeats that a slow machine does not use them up.
        row = gateway(smg.port, response_timeout=1.0, resends=100)
        old, new = mt(1, [row.pk]), mt(2, [row.pk])
        accept(old)
        with child(SENDER, MSGPLATFORM_FAILPOINT="sms_sender_after_submit:1:STOP") as process:
            process.frozen()
            since, due = time.monotonic(), keys.submit_due(row.pk)
            (name,) = sms_redis.zrange(due, 0, -1)
            sms_redis.zadd(due, {name: 4e9})  # only what was frozen would write it
            until(lambda: time.monotonic() - since > row.response_timeout)
            accept(new)
            process.thaw()
            until(lambda: ended([new.id]))
            assert [line[1] for line in smg.lines()] == [new.user_number]
            sms_redis.zadd(due, {name: 0})
            until(lambda: ended([old.id]))
            assert len(accepted_once(smg)) == 2


def test_what_a_dead_sender_remembered_is_written_by_the_next(log: Path) -> None:
    sender = SmsSender()
    with Smg(log, on_submit_link()) as smg, running(sender):
        row = gateway(smg.port)
        ids = submitted_by_the_dead(row, 1)
        until(lambda: ended(ids), sender)
        assert finals(ids) == {"delivered": 1}
        assert len(accepted_once(smg)) == 1


def test_result_9_for_a_repeat_says_that_it_had_been_accepted(log: Path) -> None:
    sender = SmsSender()
    with Smg(log, on_submit_link(result=9)) as smg, running(sender):
        row = gateway(smg.port, response_timeout=60.0)
        repeated = submitted_by_the_dead(row, 1)
        until(lambda: smg.lines(), sender)
        until(lambda: not sender.workers[row.pk].is_busy, sender)
        fresh = accept(mt(2, [row.pk]))
        until(lambda: ended(fresh), sender)
        assert [f.error for f in ended(fresh).values()] == ["9"]
        assert not ended(repeated), "it awaits its Report"


def test_a_refused_login_is_tried_again_later_and_later(log: Path) -> None:
    sender = SmsSender()
    with Smg(log, BEHAVIOURS["unwelcoming"]) as smg:
        row = gateway(smg.port)

        def attempts() -> int:
            clients = [worker.link._client for worker in sender.workers.values()]
            return sum(client.attempts for client in clients if client)

        def told() -> list[bool]:
            return ["login refused: 1" in state.problem for state in presence.live()]

        with running(sender):
            ids = accept(mt(1, [row.pk]))
            begin = time.monotonic()
            until(lambda: attempts() >= 4, sender)
            assert time.monotonic() - begin >= 0.8 * (0.5 + 1 + 2), "each pause up to 20 % shorter"
            assert not ended(ids)
            until(lambda: told() == [True], sender)


def test_another_gateway_takes_over_only_what_was_never_written(
    tmp_path: Path, sms_redis: Any
) -> None:
    sender = SmsSender()
    with Smg(tmp_path / "b.log", on_submit_link()) as b, running(sender):
        down = gateway(free_port(), name="down")
        up = gateway(b.port, name="up")
        written = submitted_by_the_dead(down, 1)
        bound = accept(mt(2, [down.pk]))
        free = accept(*(mt(n, [down.pk, up.pk]) for n in range(3, 40)))
        until(lambda: len(ended(free)) == 37, sender)
        assert finals(free) == {"delivered": 37}
        assert not ended(written + bound)
        assert len(accepted_once(b)) == 37
        with Smg(tmp_path / "a.log", on_submit_link(), port=down.port) as a:
            until(lambda: len(ended(written + bound)) == 2, sender, seconds=240)
            assert len(accepted_once(a)) == 2


def test_what_a_gateway_was_too_busy_for_goes_another_way_when_it_is_gone(
    tmp_path: Path, sms_redis: Any
) -> None:
    sender = SmsSender()
    with Smg(tmp_path / "b.log", on_submit_link()) as b, running(sender):
        up = gateway(b.port, name="up")
        with Smg(tmp_path / "a.log", on_submit_link(per_second=0)) as a:
            busy = gateway(a.port, name="busy")
            ids = accept(*(mt(n, [busy.pk, up.pk], text="same") for n in range(5)))
            ids += accept(*(mt(n, [busy.pk, up.pk], text=LONG) for n in range(5, 8)))
            until(lambda: len({(line[1], line[2]) for line in a.lines()}) == 14, sender)
            until(lambda: not sender.workers[busy.pk].is_busy, sender)
        until(lambda: len(ended(ids)) == 8, sender)
        assert finals(ids) == {"delivered": 8}
        assert len(accepted_once(b)) == 5 + 9


def test_however_many_wait_for_a_gateway_that_is_down_they_are_in_nobody_s_way(
    log: Path, sms_redis: Any
) -> None:
    sender = SmsSender()
    with Smg(log, on_submit_link()) as smg, running(sender):
        down, up = gateway(free_port(), name="down"), gateway(smg.port, name="up")
        accept(*(mt(n, [down.pk]) for n in range(7000)))
        waiting = sms_redis.lrange(keys.pending(down.pk), 0, -1)
        late = accept(mt(7000, [down.pk], expire_at=time.time() + 1))
        free = accept(*(mt(n, [down.pk, up.pk]) for n in range(7001, 7030)))
        until(lambda: len(ended(free + late)) == 30, sender)
        assert (finals(free), finals(late)) == ({"delivered": 29}, {"expired": 1})
        assert len(accepted_once(smg)) == 29
        assert sms_redis.lrange(keys.pending(down.pk), 0, -1) == waiting


def test_a_gateway_that_is_switched_off_strands_nobody(log: Path, sms_redis: Any) -> None:
    """What may go another way does; what may not waits, or ends when its time is over."""
    sender = SmsSender()
    with Smg(log, on_submit_link()) as smg, running(sender):
        # In the end both lead to one simulator, which reports over any of its links.
        off = gateway(free_port(), name="off", enabled=False, operator="one")
        on = gateway(smg.port, name="on", operator="one")
        only = accept(*(mt(n, [off.pk]) for n in range(1500)))
        late = accept(mt(1500, [off.pk], expire_at=time.time() + 1))
        free = accept(*(mt(n, [off.pk, on.pk]) for n in range(1501, 1520)))
        until(lambda: len(ended(free)) == 19 and ended(late), sender)
        assert finals(free) == {"delivered": 19}
        assert finals(late) == {"expired": 1}
        assert len(accepted_once(smg)) == 19
        assert not ended(only)
        assert sms_redis.llen(keys.pending(off.pk)) == 1500
        SmsGateway.objects.filter(pk=off.pk).update(enabled=True, port=smg.port)
        until(lambda: len(ended(only)) == 1500, sender)
        assert len(accepted_once(smg)) == 1519


def test_a_gateway_whose_own_process_is_not_running_strands_nobody(
    log: Path, sms_redis: Any
) -> None:
    sender = SmsSender()
    with Smg(log, on_submit_link()) as smg, running(sender):
        own = gateway(free_port(), name="own", own_process=True)
        on = gateway(smg.port, name="on")
        only, free = accept(mt(1, [own.pk])), accept(mt(2, [own.pk, on.pk]))
        late = accept(mt(3, [own.pk], expire_at=time.time() + 1))
        until(lambda: ended(free) and ended(late), sender)
        assert (finals(free), finals(late)) == ({"delivered": 1}, {"expired": 1})
        assert sms_redis.lrange(keys.pending(own.pk), 0, -1) == [only[0].encode()]


def test_the_speed_limit_holds_for_all_senders_together(log: Path) -> None:
    senders = SmsSender(), SmsSender()
    with Smg(log, on_submit_link()) as smg:
        row = gateway(smg.port, speed_limit=20.0, connections=2)
        begin = time.monotonic()
        ids = accept(*(mt(n, [row.pk], text="same") for n in range(60)))
        with turning(*senders):
            until(lambda: len(ended(ids)) == 60)
            took = time.monotonic() - begin
        assert took > 2.0, f"60 messages at 20 a second took {took:.1f} s"
        assert len(accepted_once(smg)) == 60


def test_repeats_keep_to_the_speed_limit_too(log: Path) -> None:
    """Each pays for its users: the first one on credit, the others when that is paid for."""
    sender = SmsSender()
    with Smg(log, on_submit_link()) as smg:
        row = gateway(smg.port, speed_limit=20.0)
        ids = [id for n in range(0, 60, 20) for id in submitted_by_the_dead(row, *range(n, n + 20))]
        begin = time.monotonic()
        with running(sender):
            until(lambda: len(ended(ids)) == 60, sender)
            took = time.monotonic() - begin
        assert took > 1.8, f"the third one followed 40 messages at 20 a second after {took:.1f} s"
        assert len(accepted_once(smg)) == 60


def test_senders_share_the_connections_that_a_gateway_allows(log: Path) -> None:
    """The eldest has the odd one; who ends leaves its share to the others."""
    first, second = SmsSender(), SmsSender()
    assert first.name < second.name

    def held() -> tuple[int, ...]:
        states = [
            state for state in presence.live() if state.kind == "submit" and not state.problem
        ]
        return tuple(sum(s.process == w.name for s in states) for w in (first, second))

    with Smg(log, on_submit_link()) as smg:
        gateway(smg.port, connections=3)
        with running(first):
            until(lambda: held() == (3, 0), first)
            with running(second):
                until(lambda: held() == (2, 1), first, second)
                until(lambda: len(smg.simulator.connections) == 3, first, second)
            until(lambda: held() == (3, 0), first)


def test_the_last_connection_changes_hands(log: Path, sms_redis: Any) -> None:
    holder, standby = SmsSender(), SmsSender()
    with Smg(log, on_submit_link()) as smg:
        row = gateway(smg.port, connections=1)
        with running(standby):
            with running(holder):
                until(lambda: holder.workers and holder.workers[row.pk].link.is_up, holder)
                ids = accept(*(mt(n, [row.pk]) for n in range(20)))
                until(lambda: len(ended(ids)) == 20, standby, holder)
                kinds = {state.process: state.kind for state in presence.live()}
                assert kinds == {holder.name: "submit", standby.name: "standby"}
                assert not standby.workers[row.pk].link.is_up
            ids = accept(*(mt(n, [row.pk]) for n in range(20, 40)))
            until(lambda: len(ended(ids)) == 20, standby)
        assert len(accepted_once(smg)) == 40
    assert not sms_redis.hlen(keys.LINKS), "who ends says so"


def test_an_idle_link_is_unbound_and_comes_again(log: Path) -> None:
    sender = SmsSender()
    with Smg(log, on_submit_link()) as smg, running(sender):
        row = gateway(smg.port, idle_timeout=0.5)
        until(lambda: row.pk in sender.workers and sender.workers[row.pk].link.is_asleep, sender)
        assert not smg.simulator.connections
        ids = accept(mt(1, [row.pk]))
        until(lambda: ended(ids), sender)
        assert finals(ids) == {"delivered": 1}


def test_a_link_over_which_the_gateway_delivers_is_there_after_a_quiet_time(
    log: Path, sms_redis: Any
) -> None:
    """The next MO comes when nothing is to be sent."""
    sender = SmsSender()
    with Smg(log, on_submit_link()) as smg, running(sender):
        row = gateway(smg.port, idle_timeout=0.5)
        ids = accept(mt(1, [row.pk]))
        until(lambda: ended(ids), sender)

        def attempts() -> int:
            client = sender.workers[row.pk].link._client
            return client.attempts if client else 0

        before = attempts()
        until(lambda: attempts() >= before + 2, sender)
        smg.call(lambda: smg.simulator.deliver("8613800000000", SP_NUMBER, "TD"))
        until(lambda: sms_redis.llen(keys.LIST_MO), sender)


def test_connections_that_slept_come_back_in_a_burst(log: Path) -> None:
    """Light traffic keeps one of them awake, whose window is too small for what comes then."""
    sender = SmsSender()
    behaviour = on_submit_link(response_delay=0.2, reports=ReportTime.NEVER)
    with Smg(log, behaviour) as smg, running(sender):
        row = gateway(smg.port, connections=4, window=2, idle_timeout=5.0)
        until(lambda: len(smg.simulator.connections) == 4, sender)
        numbers = count()

        def light() -> bool:
            if not sender.workers[row.pk].is_busy:
                accept(mt(next(numbers), [row.pk], report_flag=2))
            return len(smg.simulator.connections) == 1

        until(light, sender)
        burst = accept(*(mt(next(numbers), [row.pk], report_flag=2) for _ in range(100)))
        until(lambda: len(sender.workers[row.pk].link.bound_since) == 4, sender, seconds=120)
        until(lambda: len(ended(burst)) == 100, sender)
        assert len(accepted_once(smg)) == next(numbers)


def test_a_sleeping_link_whose_gateway_is_gone_takes_nothing(
    tmp_path: Path, sms_redis: Any
) -> None:
    """What may goes another way; the rest waits, and no try of a repeat is counted meanwhile."""
    sender = SmsSender()
    with Smg(tmp_path / "b.log", on_submit_link()) as b, running(sender):
        # It comes back at its port, which nobody else is given meanwhile.
        with Smg(tmp_path / "a.log", on_submit_link(), port=free_port()) as a:
            gone = gateway(a.port, name="gone", idle_timeout=0.5)
            until(
                lambda: gone.pk in sender.workers and sender.workers[gone.pk].link.is_asleep, sender
            )
            until(lambda: gone.pk in presence.connected_gateways(presence.live()), sender)
        other = gateway(b.port, name="other")
        written = submitted_by_the_dead(gone, 3)  # first: it claims whatever waits
        only, free = accept(mt(1, [gone.pk])), accept(mt(2, [gone.pk, other.pk]))
        (name,) = sms_redis.zrange(keys.submit_due(gone.pk), 0, -1)
        until(lambda: ended(free), sender)
        assert finals(free) == {"delivered": 1}
        assert gone.pk not in presence.connected_gateways(presence.live())
        assert any(link.problem.startswith("no connection") for link in presence.live())
        assert not sms_redis.hexists(keys.mt(int(only[0])), "submits")
        assert sms_redis.hget(f"{keys.PREFIX}submit:{name.decode()}", "tries") == b"0"
        with Smg(tmp_path / "a.log", on_submit_link(), port=gone.port) as a:
            until(lambda: len(ended(only + written)) == 2, sender)
            assert finals(only + written) == {"delivered": 2}
            assert len(accepted_once(a)) == 2


@contextmanager
def listening(make_smg: Callable[[], asyncio.Protocol]) -> Iterator[int]:
    """The port of a gateway that is no simulator."""
    net = NetThread()

    async def listen() -> asyncio.Server:
        return await asyncio.get_running_loop().create_server(make_smg, "127.0.0.1", 0)

    net.start()
    try:
        server = net.run(listen(), WAIT)
        yield int(server.sockets[0].getsockname()[1])
        net.call(server.close)
    finally:
        net.stop()


def test_a_gateway_s_own_time_ends_the_link_in_order_and_ours_is_the_operator_s() -> None:
    """Bind, Submit and Unbind as they were written; Unbind's answer has another time."""
    sender, received = SmsSender(), list[sgip.Command]()
    began = datetime.now(OPERATOR).replace(microsecond=0)
    with listening(lambda: OwnTimeSmg(received)) as port, running(sender):
        row = gateway(port, idle_timeout=0.5)
        accept(mt(1, [row.pk]))
        kinds = [sgip.Bind, sgip.Submit, sgip.Unbind]
        until(lambda: [type(command) for command in received][-3:] == kinds, sender)
        link = sender.workers[row.pk].link
        until(lambda: link.is_asleep or link.problem, sender)
        assert link.is_asleep, link.problem
        assert not link.bound_since
    seconds = int((datetime.now(OPERATOR) - began).total_seconds()) + 1
    moments = [began + timedelta(seconds=n) for n in range(seconds)]
    times = {int(moment.strftime("%m%d%H%M%S")) for moment in moments}
    assert {command.sequence[1] for command in received} <= times


@pytest.mark.parametrize("is_closing", [True, False])
def test_a_gateway_that_does_not_answer_unbind_is_not_down(is_closing: bool) -> None:
    """The link sleeps, and comes back when there is something to send."""
    sender, received = SmsSender(), list[sgip.Command]()
    with listening(lambda: MuteSmg(received, is_closing)) as port, running(sender):
        row = gateway(port, idle_timeout=0.5)
        until(lambda: any(isinstance(one, sgip.Unbind) for one in received), sender)
        link = sender.workers[row.pk].link
        until(lambda: link.is_asleep or link.problem, sender)
        assert link.is_asleep, link.problem
        ids = accept(mt(1, [row.pk], report_flag=2))
        until(lambda: ended(ids), sender)
        kinds = [type(command) for command in received]
        assert kinds[:4] == [sgip.Bind, sgip.Unbind, sgip.Bind, sgip.Submit]


def test_a_gateway_that_unbinds_instead_of_answering_is_down() -> None:
    """It does not sleep: what never went to it may go another way."""
    sender = SmsSender()

    def has_problem(row: SmsGateway) -> bool:
        worker = sender.workers.get(row.pk)
        return worker is not None and worker.link.problem == "link unbound"

    with listening(lambda: UnbindingSmg([])) as port, running(sender):
        row = gateway(port)
        accept(mt(1, [row.pk]))
        until(lambda: has_problem(row), sender)


def test_a_gateway_that_unbinds_at_once_is_down() -> None:
    """It does not sleep: nobody would notice, and no message go another way."""
    sender, received = SmsSender(), list[sgip.Command]()
    with listening(lambda: LeavingSmg(received)) as port, running(sender):
        row = gateway(port)
        until(lambda: sum(type(one) is sgip.Bind for one in received) >= 3, sender)
        until(lambda: sender.workers[row.pk].link.problem == "link unbound after bind", sender)
        assert not sender.workers[row.pk].link.is_asleep


def test_a_submit_on_which_the_gateway_closes_the_link_is_in_nobody_s_way(sms_redis: Any) -> None:
    """It is left to Redis, which counts its tries, and the others go on."""
    sender, received, bad = SmsSender(), list[sgip.Command](), mt(1, [1])
    with listening(lambda: ClosingSmg(received, bad.user_number)) as port:
        row = gateway(port, pk=1, window=4, response_timeout=150.0, resends=0)
        accept(bad)
        good = accept(*(mt(n, [row.pk], report_flag=2) for n in range(2, 12)))
        with running(sender):
            until(lambda: len(ended(good)) == 10, sender, seconds=100)
            assert finals(good) == {"accepted": 10}
            (name,) = sms_redis.zrange(keys.submit_due(row.pk), 0, -1)
            sms_redis.zadd(keys.submit_due(row.pk), {name: 1})
            until(lambda: ended([bad.id]), sender)
    assert finals([bad.id]) == {"unknown": 1}
    users = [command.user_numbers for command in received if isinstance(command, sgip.Submit)]
    assert users.count((bad.user_number,)) == 2


def test_drain_gives_back_what_was_claimed_and_awaits_the_rest(log: Path, sms_redis: Any) -> None:
    sender = SmsSender()
    with Smg(log, on_submit_link(response_delay=0.3, reports=ReportTime.NEVER)) as smg:
        row = gateway(smg.port, window=2, response_timeout=60.0)
        ids = accept(*(mt(n, [row.pk]) for n in range(50)))
        with running(sender):
            until(lambda: smg.lines(), sender)
            sender.drain(time.monotonic() + 60)
        assert sms_redis.zcard(keys.claimed(row.pk)) == 0
        assert sms_redis.scard(keys.SUBMITED) == 0, "each response was awaited and written down"
        pending = sms_redis.llen(keys.pending(row.pk))
        assert pending == len(ids) - len(accepted_once(smg))
        assert pending > 0


def test_a_dead_gateway_that_is_changed_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its link is closed beside the turn, and replaced when it is closed."""
    monkeypatch.setattr("gateway.sender.sender._UNBIND_SECONDS", 120.0)
    sender = SmsSender()
    with (
        Smg(tmp_path / "a.log", on_submit_link(response_delay=None)) as dead,
        Smg(tmp_path / "b.log", on_submit_link()) as b,
        turning(sender),
    ):
        row = gateway(dead.port, name="dead", response_timeout=120.0)
        healthy = gateway(b.port, name="healthy")
        accept(mt(1, [row.pk]))
        until(lambda: dead.lines())
        (old,), worker = dead.simulator.connections, sender.workers[row.pk]
        SmsGateway.objects.filter(pk=row.pk).update(window=5)
        until(lambda: sender.workers.get(row.pk) is not worker)
        ids = accept(mt(2, [healthy.pk]))
        until(lambda: ended(ids))
        assert dead.simulator.connections == [old]
        dead.call(old.drop)
        until(lambda: dead.simulator.connections not in ([], [old]))


def test_changed_settings_make_the_link_anew(tmp_path: Path) -> None:
    sender = SmsSender()
    with (
        Smg(tmp_path / "a.log", on_submit_link()) as a,
        Smg(tmp_path / "b.log", on_submit_link()) as b,
        running(sender),
    ):
        row = gateway(a.port)
        first = accept(mt(1, [row.pk]))
        until(lambda: ended(first), sender)
        SmsGateway.objects.update(port=b.port)
        until(lambda: not a.simulator.connections, sender)
        second = accept(mt(2, [row.pk]))
        until(lambda: ended(second), sender)
        assert (len(a.lines()), len(b.lines())) == (1, 1)
        SmsGateway.objects.update(enabled=False)
        until(lambda: not b.simulator.connections, sender)
