"""The life of messages in Redis: one walked step by step, and each way in which it may go wrong."""

import time
from typing import Any

import msgspec
import pytest

from gateway.lifecycle import keys, mo_store, store
from gateway.lifecycle.messages import (
    Member,
    Mo,
    Mt,
    NewSubmit,
    ReportIn,
    Response,
    Sent,
    WaitingMessage,
)
from gateway.sender import rerouting
from gateway.sender.rerouting import FRONT, Place, divert

pytestmark = pytest.mark.usefixtures("sms_redis")
GATEWAY, NODE, TS = 7, 3010099999, 1121131500
WAIT, TRIES = 3600.0, 3
RUN = keys.accepted("").encode()  # expires


def mt(number: int, **fields: Any) -> Mt:
    return Mt(
        id=str(2**60 + number), biz=1, account=1, user_number=f"86138{number:08d}",
        text="你好", sp_number="10655", corp_id="99999", gateways=[GATEWAY], **fields,
    )  # fmt: skip


def accept(*messages: Mt, **call: Any) -> Any:
    return store.accept([store.Call(messages, biz=1, **call)], 86400)[0]


def claim(holder: str = "me", most: int = 100, lease: float = 30) -> list[Any]:
    return store.claim(GATEWAY, holder, most, lease)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic time, which stands still otherwise."""
    seconds = [time.monotonic()]
    monkeypatch.setattr(time, "monotonic", lambda: seconds[0])
    return seconds


def look(
    place: Place, most: int = 10, holder: str = "me"
) -> tuple[list[WaitingMessage], Place | None]:
    return rerouting.look(GATEWAY, holder, place, most)


def dumped(client: Any) -> dict[bytes, Any]:
    """All keys but those that say who looks."""
    names = [key for key in client.keys("*") if b"walker:" not in key and RUN not in key]
    return {key: client.dump(key) for key in names}


def submit(
    *messages: Mt, seqno: int, part: int = 1, parts: int = 1, holder: str = "me", wait: float = WAIT
) -> bool:
    new = NewSubmit(
        seqno, TS, NODE, part, parts, b"frame-%d" % seqno,
        [Member(m.id, m.user_number) for m in messages],
    )  # fmt: skip
    return bool(store.submit(GATEWAY, holder, [new], 60.0, wait))


def respond(seqno: int, verdict: str = "accepted", result: int = 0, delay: float = 0) -> str:
    (what,) = store.respond([Response(f"{seqno}:{TS}", result, verdict, delay)], TRIES)
    return what


def report(message: Mt, seqno: int, state: int = 0, error: int = 0, node: int = NODE) -> str:
    (what,) = store.report([ReportIn(seqno, TS, node, message.user_number, state, error)])
    return what


def finals() -> dict[str, str]:
    ids = store.take(keys.LIST_REPORT, keys.REPORTING, 1000, 60).entries
    return {found.mt.id: found.final for found in store.read(ids)}


def kept(client: Any) -> set[str]:
    names = (key for key in client.keys("*") if RUN not in key)
    return {name.decode().removeprefix(keys.PREFIX) for name in names}


def test_the_keys_of_one_message_after_each_step(sms_redis: Any) -> None:
    message = mt(1)
    name = message.id
    accept(message)
    assert kept(sms_redis) == {f"mt:{name}", "list:pending-7", "mt-GID", "mt-minutes"}
    assert sms_redis.hget(keys.mt(int(name)), "state") == b"pending"

    (claimed,) = claim()
    assert claimed.mt == message
    assert kept(sms_redis) == {f"mt:{name}", "zset:claimed-7", "mt-GID", "mt-minutes"}

    assert submit(message, seqno=5)
    submitted = {
        f"mt:{name}", f"mt-seqno:{name}", f"mt-ts:{name}", f"submit:5:{TS}", "mt-GID", "mt-minutes",
        "set:submited", "zset:submit-due-7", "zset:report-due",
    }  # fmt: skip
    assert kept(sms_redis) == submitted
    assert sms_redis.hget(keys.submit(5, TS), "frame") == b"frame-5"

    assert respond(5) == "done"
    responded = (submitted - {"set:submited", "zset:submit-due-7"}) | {"set:response-succ"}
    assert kept(sms_redis) == responded

    assert report(message, 5) == "matched"
    reported = (responded - {"set:response-succ", "zset:report-due"}) | {
        f"report:{name}", "list:report",
    }  # fmt: skip
    assert kept(sms_redis) == reported

    assert store.take(keys.LIST_REPORT, keys.REPORTING, 10, 60).entries == [name]
    (found,) = store.read([name])
    assert (found.final, found.results) == ("delivered", {1: 0})
    assert found.sent == [Sent(1, NODE, TS, 5)]
    assert found.accepted_at <= found.submitted_at <= found.responded_at <= found.reported_at
    assert store.pass_on(keys.REPORTING, keys.LIST_FINISH, [name]) == 1
    assert kept(sms_redis) == (reported - {"list:report"}) | {"list:finish"}

    assert store.take(keys.LIST_FINISH, keys.FINISHING, 10, 60).entries == [name]
    assert store.forget([found]) == {name}
    assert kept(sms_redis) == {"mt-GID", "mt-minutes"}


class TestIntake:
    def test_each_minute_counts_what_was_accepted_in_it(self, sms_redis: Any) -> None:
        before = int(sms_redis.time()[0]) // 60
        old = {before - 60 * 25 - n: 3 for n in range(2000)}
        sms_redis.hset(keys.MT_MINUTES, mapping=old)
        accept(mt(1), mt(2), idempotency_key="k", payload_hash="h")
        accept(mt(1), mt(2), idempotency_key="k", payload_hash="h")
        accept(mt(3))
        found = {int(at): int(value) for at, value in sms_redis.hgetall(keys.MT_MINUTES).items()}
        after = int(sms_redis.time()[0]) // 60
        assert sum(found.values()) == 3, "a repeat is not counted, what is old is forgotten"
        assert before <= min(found) <= max(found) <= after

    def test_a_run_that_is_repeated_stores_nothing_that_has_ended(self, sms_redis: Any) -> None:
        """Its answer was lost: calls without a key are known by the run, with what it refused."""
        day = store.Allowance(f"{keys.PREFIX}spent:1:day", 1)
        calls = [
            store.Call([mt(1)], 1, allowance=day), store.Call([mt(2)], 1, allowance=day),
            store.Call([mt(3)], 1, "k", "h"),
        ]  # fmt: skip
        first, second, third = store.accept(calls, 86400)
        assert (first, type(second), third) == (None, store.OverLimit, None)
        sms_redis.delete(*(keys.mt(int(mt(n).id)) for n in (1, 3)), keys.pending(GATEWAY))
        first, second, third = store.accept(calls, 86400)
        assert (first, type(second)) == (None, store.OverLimit)
        assert isinstance(third, store.FirstCall)
        assert not sms_redis.exists(keys.pending(GATEWAY), keys.mt(int(mt(1).id)))

    def test_the_same_key_answers_with_the_first_ids(self, sms_redis: Any) -> None:
        assert accept(mt(1), mt(2), idempotency_key="k", payload_hash="h") is None
        first = accept(mt(3), mt(4), idempotency_key="k", payload_hash="other")
        assert (first.ids, first.hash) == ([mt(1).id, mt(2).id], "h")
        assert sms_redis.llen(keys.pending(GATEWAY)) == 2
        assert sms_redis.get(keys.MT_COUNT) == b"2"

    def test_a_repeated_script_takes_a_message_in_once(self, sms_redis: Any) -> None:
        accept(mt(1))
        accept(mt(1))
        assert sms_redis.llen(keys.pending(GATEWAY)) == 1

    def test_priority_then_age(self) -> None:
        accept(mt(1), mt(2, priority=9), mt(3), mt(4, priority=1))
        assert [c.mt.id for c in claim()] == [mt(n).id for n in (2, 4, 1, 3)]

    def test_scheduled_ones_wait(self) -> None:
        accept(mt(1, schedule_at=4e9), mt(2, schedule_at=1.0))
        assert [c.mt.id for c in claim()] == [mt(2).id]

    def test_scheduled_ones_go_out_by_their_times_behind_those_that_wait(
        self, sms_redis: Any
    ) -> None:
        """A claim takes few of the 3,000 that are due; a message that comes back is the first."""
        numbers = range(1, 3001)
        accept(mt(0), *(mt(n, schedule_at=4e9) for n in numbers))
        sms_redis.zadd(keys.scheduled(GATEWAY), {mt(n).id: n for n in numbers})
        claimed_ids = [c.mt.id for _ in range(4) for c in claim(most=26)]
        submit(mt(0), seqno=1)
        respond(1, "again", 11)
        while claimed := claim(most=26):
            claimed_ids += [c.mt.id for c in claimed]
        assert claimed_ids == [mt(n).id for n in (*range(104), 0, *range(104, 3001))]


class TestClaims:
    def test_a_lost_lease_is_taken_up_and_the_first_holder_shut_out(self) -> None:
        accept(mt(1))
        claim("first", lease=0)
        assert [c.mt.id for c in claim("second")] == [mt(1).id]
        assert not submit(mt(1), seqno=1, holder="first"), "it would be sent twice"
        assert submit(mt(1), seqno=2, holder="second")

    def test_a_held_one_is_not_handed_out_again(self) -> None:
        accept(mt(1))
        claim("first")
        assert claim("second") == []

    def test_what_has_ended_in_a_sender_s_hands_is_not_sent(self) -> None:
        """Its system may have sent it again."""
        accept(mt(1))
        claim()
        submit(mt(1), seqno=1, wait=1e-6)
        respond(1, "again", 88)
        (claimed,) = claim()
        assert store.end_overdue(10) == 1
        assert finals() == {claimed.mt.id: "failed"}
        assert not submit(mt(1), seqno=2)
        assert store.release(GATEWAY, "me", [claimed.mt.id]) == 1
        assert claim() == []

    def test_release_puts_them_in_front_in_their_order(self) -> None:
        accept(*(mt(n) for n in range(4)))
        held = claim(most=2)
        assert store.release(GATEWAY, "me", [c.mt.id for c in held]) == 2
        assert [c.mt.id for c in claim()] == [mt(n).id for n in range(4)]

    def test_what_a_gateway_may_have_taken_does_not_go_to_another(self) -> None:
        """The other part of the first message has no answer."""
        accept(mt(1), mt(2))
        claim()
        members = [Member(mt(1).id, mt(1).user_number)]
        parts = [NewSubmit(n, TS, NODE, n, 2, b"", members) for n in (1, 2)]
        assert store.submit(GATEWAY, "me", parts, 60.0, WAIT) == parts
        respond(1, "again", 11)
        store.release(GATEWAY, "me", [mt(2).id])
        seen, following = look(FRONT)
        assert following is None
        assert {one.mt.id: one.was_sent for one in seen} == {mt(1).id: True, mt(2).id: False}
        assert divert(GATEWAY, [(one, 8) for one in seen]) == 1
        assert [c.mt.id for c in store.claim(8, "me", 10, 30)] == [mt(2).id]
        assert [c.mt.id for c in claim()] == [mt(1).id]

    def test_what_was_only_refused_goes_to_another_gateway_as_a_whole(self) -> None:
        accept(mt(1))
        claim()
        members = [Member(mt(1).id, mt(1).user_number)]
        parts = [NewSubmit(n, TS, NODE, n, 3, b"", members) for n in (1, 2, 3)]
        assert store.submit(GATEWAY, "me", parts, 60.0, WAIT) == parts
        for seqno in (1, 2, 3):
            respond(seqno, "again", 88)
        (one,), _following = look(FRONT)
        assert not one.was_sent
        assert divert(GATEWAY, [(one, 8)]) == 1
        (claimed,) = store.claim(8, "me", 10, 30)
        assert claimed.part_numbers == ()
        # Over the other gateway its text needs two parts only.
        parts = [NewSubmit(3 + n, TS, NODE, n, 2, b"", members) for n in (1, 2)]
        assert store.submit(8, "me", parts, 60.0, WAIT) == parts
        assert store.claim(8, "me", 10, 30) == []
        respond(4)
        respond(5)
        assert [report(mt(1), seqno) for seqno in (4, 5)] == ["matched", "matched"]
        assert finals() == {mt(1).id: "delivered"}

    def test_a_pack_that_was_halved_goes_to_another_gateway(self) -> None:
        accept(mt(1), mt(2))
        claim()
        submit(mt(1), mt(2), seqno=1)
        respond(1, "refused", 6)
        seen, _following = look(FRONT)
        assert divert(GATEWAY, [(one, 8) for one in seen]) == 2
        assert [(c.max_users, c.part_numbers) for c in store.claim(8, "me", 10, 30)] == [
            (1, ())
        ] * 2

    def test_a_busy_gateway_that_is_gone_for_good_ends_its_messages(self) -> None:
        accept(mt(1))
        claim()
        submit(mt(1), seqno=1, wait=1e-6)
        respond(1, "again", 88)
        assert store.end_overdue(10) == 1
        assert finals() == {mt(1).id: "failed"}
        assert claim() == []

    def test_a_look_changes_nothing_and_what_leaves_keeps_its_order(self, sms_redis: Any) -> None:
        accept(*(mt(n, priority=n % 2) for n in range(9)))
        before = dumped(sms_redis)
        seen: list[WaitingMessage] = []
        place: Place | None = FRONT
        while place is not None:
            some, place = look(place, 2)
            seen += some
        order = [mt(n).id for n in (1, 3, 5, 7, 0, 2, 4, 6, 8)]
        assert [one.mt.id for one in seen] == order
        assert dumped(sms_redis) == before
        assert look(FRONT, holder="another") == ([], None), "one at a time looks"
        leaving = [one for one in seen if one.mt.id not in (mt(3).id, mt(4).id)]
        assert divert(GATEWAY, [(one, 8) for one in leaving]) == 7
        assert divert(GATEWAY, [(one, 8) for one in leaving]) == 0, "they have moved"
        moved = [c.mt.id for c in store.claim(8, "me", 10, 30)]
        assert moved == [id for id in order if id not in (mt(3).id, mt(4).id)]
        assert [c.mt.id for c in claim()] == [mt(3).id, mt(4).id]

    def test_a_look_at_nothing_writes_nothing(self, sms_redis: Any) -> None:
        assert look(FRONT) == ([], None)
        accept(mt(1, schedule_at=4e9))
        before = set(sms_redis.keys("*"))
        assert look(FRONT) == ([], None)
        assert set(sms_redis.keys("*")) == before

    def test_a_way_that_becomes_free_ends_the_pause(self, clock: list[float]) -> None:
        message = msgspec.structs.replace(mt(1), gateways=[GATEWAY, 8])
        accept(message)
        walk = rerouting.Walk(GATEWAY, "me")
        assert walk.turn(lambda: [9]) == 0
        assert walk.turn(list) == 0
        assert walk.turn(lambda: [8]) == 1
        assert [c.mt.id for c in store.claim(8, "me", 10, 30)] == [message.id]

    def test_a_walk_that_was_frozen_goes_on_soon(self, clock: list[float]) -> None:
        def freeze() -> list[int]:
            clock[0] += 1200
            return []

        walk = rerouting.Walk(GATEWAY, "me")
        assert walk.turn(freeze) == 0
        accept(mt(1, expire_at=1.0))
        assert walk.turn(list) == 0, "a pause"
        clock[0] += 60
        assert walk.turn(list) == 1, "it has ended as expired"

    def test_page_by_page_they_arrive_in_their_order_behind_others(self) -> None:
        accept(*(mt(n) for n in range(6)))
        store.accept([store.Call([msgspec.structs.replace(mt(6), gateways=[8])])], 60)
        place: Place | None = FRONT
        while place is not None:
            some, _following = look(FRONT, 2)
            divert(GATEWAY, [(one, 8) for one in some])
            place = FRONT if some else None
        moved = [c.mt.id for c in store.claim(8, "me", 10, 30)]
        assert moved == [mt(n).id for n in (6, 0, 1, 2, 3, 4, 5)]

    def test_all_that_is_due_is_looked_at_at_once(self, sms_redis: Any) -> None:
        accept(*(mt(n, schedule_at=4e9) for n in range(2500)))
        due = {mt(n).id: n + 1 for n in range(2500)}
        sms_redis.zadd(keys.scheduled(GATEWAY), due)
        place: Place | None = FRONT
        looks, seen = 0, set[str]()
        while place is not None:
            some, place = look(place, 1000)
            seen |= {one.mt.id for one in some}
            looks += 1
        assert seen == set(due)
        assert looks <= 8

    def test_what_has_ended_leaves_the_list_where_nobody_claims(self, sms_redis: Any) -> None:
        accept(*(mt(n) for n in range(5)))
        for n in (0, 2, 4):
            sms_redis.hset(keys.mt(int(mt(n).id)), "final", "failed")
        first, place = look(FRONT, 3)
        assert [(one.mt.id, one.position) for one in first] == [(mt(1).id, 0)]
        assert place is not None
        rest, place = look(place, 3)
        assert ([(one.mt.id, one.position) for one in rest], place) == ([(mt(3).id, 1)], None)
        assert sms_redis.llen(keys.pending(GATEWAY)) == 2
        assert divert(GATEWAY, [(one, 8) for one in (*first, *rest)]) == 2

    def test_ended_ones_are_published(self) -> None:
        accept(mt(1))
        claim()
        assert store.end(GATEWAY, "me", [(mt(1).id, "expired", "")]) == 1
        assert finals() == {mt(1).id: "expired"}


class TestResponses:
    def test_a_repeated_response_changes_nothing(self) -> None:
        accept(mt(1))
        claim()
        submit(mt(1), seqno=1)
        assert [respond(1), respond(1, "refused", 5)] == ["done", "repeated"]
        assert finals() == {}

    def test_an_unknown_one(self) -> None:
        assert respond(99) == "unknown"

    def test_again_takes_a_new_sequence_and_keeps_the_old_one(self) -> None:
        accept(mt(1))
        claim()
        submit(mt(1), seqno=1)
        respond(1, "again", 11)
        (claimed,) = claim()
        assert (claimed.tries, claimed.part_numbers) == (1, ())
        submit(mt(1), seqno=2)
        assert report(mt(1), 1) == "matched", "a Report for the first sequence counts too"
        assert finals() == {mt(1).id: "delivered"}

    def test_again_ends_after_the_most_tries(self) -> None:
        accept(mt(1))
        for seqno in range(TRIES + 1):
            claim()
            submit(mt(1), seqno=seqno)
            respond(seqno, "again", 11)
        assert claim() == []
        assert finals() == {mt(1).id: "failed"}
        (found,) = store.read([mt(1).id])
        assert found.error == "the gateway stayed busy"

    @pytest.mark.parametrize("verdict", ["again", "unanswered"])
    def test_a_busy_gateway_says_nothing_of_what_was_repeated(
        self, sms_redis: Any, verdict: str
    ) -> None:
        """The answer may be to the first bytes, and another process has repeated them."""
        accept(mt(1))
        claim()
        submit(mt(1), seqno=1)
        sms_redis.zadd(keys.submit_due(GATEWAY), {f"1:{TS}": 0})
        assert store.repeat(GATEWAY, 60, 2, 10) == [(f"1:{TS}", b"frame-1")]
        assert respond(1, verdict, 88) == "unanswered"
        assert claim() == []
        assert sms_redis.zcard(keys.submit_due(GATEWAY)) == 1, "it will be repeated once more"
        assert respond(1) == "done"

    def test_a_sequence_that_was_used_by_its_own_repeat_was_taken(self, sms_redis: Any) -> None:
        """A slow link brought the first bytes behind those that another process repeated."""
        accept(mt(1, report_flag=2), mt(2, report_flag=2))
        claim()
        submit(mt(1), seqno=1)
        submit(mt(2), seqno=2)
        sms_redis.zadd(keys.submit_due(GATEWAY), {f"1:{TS}": 0})
        assert len(store.repeat(GATEWAY, 60, 2, 10)) == 1
        assert [respond(seqno, "used", 9) for seqno in (1, 2)] == ["done", "done"]
        assert finals() == {mt(1).id: "accepted", mt(2).id: "failed"}

    def test_a_late_refusal_says_more_than_unknown(self) -> None:
        accept(mt(1), mt(2), mt(3))
        claim()
        submit(mt(1), seqno=1, wait=1e-6)
        submit(mt(2), mt(3), seqno=2, wait=1e-6)
        assert store.end_overdue(10) == 3
        assert set(finals().values()) == {"unknown"}
        store.finish_published({mt(1).id: "unknown"})
        assert respond(1, "refused", 23) == "done"
        assert respond(2, "refused", 23) == "done"
        assert finals() == {mt(1).id: "failed"}, "of two it is not known who is to blame"
        assert store.read([mt(1).id])[0].error == "23"

    def test_again_waits(self) -> None:
        accept(mt(1))
        claim()
        submit(mt(1), seqno=1)
        respond(1, "again", 11, delay=3600)
        assert claim() == []

    def test_a_refused_pack_is_halved_down_to_the_one_to_blame(self) -> None:
        messages = [mt(n) for n in range(4)]
        bad = messages[2]
        accept(*messages)
        seqno, packs = 0, []
        while claimed := claim():
            sizes = {c.max_users or 4 for c in claimed}
            (most,) = sizes
            for start in range(0, len(claimed), most):
                pack = [c.mt for c in claimed[start : start + most]]
                seqno += 1
                packs.append(len(pack))
                submit(*pack, seqno=seqno)
                refused = bad in pack
                respond(seqno, "refused" if refused else "accepted", 6 if refused else 0)
        assert packs == [4, 2, 2, 1, 1]
        assert finals() == {bad.id: "failed"}

    def test_nobody_fails_for_a_member_that_has_ended(self) -> None:
        """The second part of the pack is refused after each was tried alone with the first."""
        bad, good = mt(1), mt(2)
        accept(bad, good)
        claim()
        both = [Member(m.id, m.user_number) for m in (bad, good)]
        parts = [NewSubmit(n, TS, NODE, n, 2, b"f", both) for n in (1, 2)]
        assert store.submit(GATEWAY, "me", parts, 60.0) == parts
        respond(1, "refused", 6)
        assert {c.max_users for c in claim()} == {1}
        submit(bad, seqno=3, parts=2)
        submit(good, seqno=4, parts=2)
        respond(3, "refused", 6)
        respond(4)
        respond(2, "refused", 6)
        assert finals() == {bad.id: "failed"}
        assert [(c.mt.id, c.part_numbers, c.max_users) for c in claim()] == [(good.id, (2,), 1)]

    def test_with_report_flag_2_the_response_is_the_end(self) -> None:
        accept(mt(1, report_flag=2))
        claim()
        submit(mt(1), seqno=1)
        respond(1)
        assert finals() == {mt(1).id: "accepted"}


class TestReports:
    def test_a_report_that_overtakes_the_response(self, sms_redis: Any) -> None:
        accept(mt(1))
        claim()
        submit(mt(1), seqno=1)
        assert report(mt(1), 1) == "matched"
        assert respond(1) == "repeated"
        assert finals() == {mt(1).id: "delivered"}
        assert not sms_redis.exists(keys.submit_due(GATEWAY)), "it is not sent again"

    def test_a_number_with_86_more_or_less_than_the_submit_s(self) -> None:
        """No mobile number of eleven digits, which would be written with 86 everywhere. A number
        as it is counts first."""
        with_86, without, both = (
            msgspec.structs.replace(mt(n), user_number=number)
            for n, number in enumerate(("861064912345678", "1064900000001", "86861064912345678"))
        )
        accept(with_86, without, both)
        claim()
        submit(with_86, without, both, seqno=1)
        as_reported = (
            (with_86, "1064912345678"),
            (without, "861064900000001"),
            (both, "86861064912345678"),
        )
        for message, number in as_reported:
            (what,) = store.report([ReportIn(1, TS, NODE, number, 0, 0)])
            assert what == "matched"
            assert message.id in finals()

    def test_state_1_is_not_final(self) -> None:
        accept(mt(1))
        claim()
        submit(mt(1), seqno=1)
        assert report(mt(1), 1, state=1) == "waiting"
        assert finals() == {}
        assert report(mt(1), 1) == "matched"

    def test_repeated(self) -> None:
        accept(mt(1))
        claim()
        submit(mt(1), seqno=1)
        assert [report(mt(1), 1), report(mt(1), 1, state=2)] == ["matched", "repeated"]
        assert finals() == {mt(1).id: "delivered"}

    def test_delivered_when_all_parts_are(self) -> None:
        accept(mt(1), mt(2))
        claim()
        members = [Member(m.id, m.user_number) for m in (mt(1), mt(2))]
        new = [NewSubmit(n, TS, NODE, n, 2, b"f", members) for n in (1, 2)]
        assert store.submit(GATEWAY, "me", new, 60.0) == new
        respond(1)
        respond(2)
        report(mt(1), 1)
        report(mt(2), 1)
        assert finals() == {}
        report(mt(1), 2)
        report(mt(2), 2, state=2, error=25)
        assert finals() == {mt(1).id: "delivered", mt(2).id: "failed"}

    @pytest.mark.parametrize("node", [NODE + 1])
    def test_one_that_matches_nothing_is_kept(self, sms_redis: Any, node: int) -> None:
        accept(mt(1))
        claim()
        submit(mt(1), seqno=1)
        assert report(mt(1), 1, node=node) == "unmatched"
        assert report(mt(2), 1) == "unmatched"
        assert sms_redis.llen(keys.LIST_UNMATCHED) == 2

    def test_unknown_turns_out_later(self) -> None:
        accept(mt(1))
        claim()
        submit(mt(1), seqno=1, wait=1e-6)
        respond(1)
        assert store.end_overdue(10) == 1
        assert finals() == {mt(1).id: "unknown"}
        store.pass_on(keys.REPORTING, keys.LIST_FINISH, [mt(1).id])
        unknown = store.read([mt(1).id])
        report(mt(1), 1)
        assert store.forget(unknown) == set(), "its real end is not archived yet"
        assert finals() == {mt(1).id: "delivered"}
        assert store.forget(store.read([mt(1).id])) == {mt(1).id}


class TestSilence:
    def test_the_same_bytes_go_out_again_and_end_unknown(self) -> None:
        accept(mt(1))
        claim()
        new = NewSubmit(1, TS, NODE, 1, 1, b"bytes", [Member(mt(1).id, mt(1).user_number)])
        store.submit(GATEWAY, "me", [new], 0.0)
        assert store.repeat(GATEWAY, 0.0, 2, 10) == [(f"1:{TS}", b"bytes")]
        assert store.repeat(GATEWAY, 0.0, 2, 10) == [(f"1:{TS}", b"bytes")]
        assert store.repeat(GATEWAY, 0.0, 2, 10) == []
        assert finals() == {mt(1).id: "unknown"}

    def test_with_report_flag_0_it_means_that_nothing_failed(self) -> None:
        """But not of a part that nobody answered."""
        whole, half = mt(1, report_flag=0), mt(2, report_flag=0)
        accept(whole, half)
        claim()
        parts = [
            NewSubmit(seqno, TS, NODE, part, 2, b"", [Member(message.id, message.user_number)])
            for seqno, (message, part) in enumerate([(whole, 1), (whole, 2), (half, 1), (half, 2)])
        ]
        assert store.submit(GATEWAY, "me", parts, 60.0, 1e-6) == parts
        for seqno in (0, 1, 2):
            respond(seqno)
        assert store.end_overdue(10) == 2
        assert finals() == {whole.id: "accepted", half.id: "unknown"}

    def test_an_answer_ends_it(self) -> None:
        accept(mt(1))
        claim()
        submit(mt(1), seqno=1)
        respond(1)
        assert store.repeat(GATEWAY, 60, 2, 10) == []


class TestMo:
    def mo(self, number: int = 1, **fields: Any) -> Mo:
        return Mo(id=str(2**60 + number), user_number="8613800000000", sp_number="10655", **fields)

    def test_taken_in_once(self, sms_redis: Any) -> None:
        sequence = (NODE, TS, 1)
        assert mo_store.accept([(self.mo(1), sequence), (self.mo(2), sequence)]) == [True, False]
        assert mo_store.accept([(self.mo(3), sequence)]) == [False]
        seen = {key.decode() for key in sms_redis.scan_iter(f"{keys.mo_seen(*sequence)}:*")}
        assert store.take(keys.LIST_MO, keys.MO_REPORTING, 10, 60).entries == [self.mo(1).id]
        assert [mo.id for mo in mo_store.read([self.mo(1).id])] == [self.mo(1).id]
        store.pass_on(keys.MO_REPORTING, keys.LIST_MO_FINISH, [self.mo(1).id])
        store.take(keys.LIST_MO_FINISH, keys.MO_FINISHING, 10, 60)
        mo_store.forget([self.mo(1).id])
        assert len(seen) == 1
        assert kept(sms_redis) == {*(key.removeprefix(keys.PREFIX) for key in seen), "mo-GID"}

    def test_another_one_under_a_used_sequence(self, sms_redis: Any) -> None:
        """The gateway was started again; a repeat of either is still known."""
        sequence = (NODE, TS, 1)
        changes: list[dict[str, Any]] = [
            {"content": b"other"}, {"user_number": "8613800000001"}, {"sp_number": "10656"},
            {"kind": "userrpt"}, {"kind": "userrpt", "user_condition": 1},
        ]  # fmt: skip
        mos = [
            msgspec.structs.replace(self.mo(n), **fields) for n, fields in enumerate([{}, *changes])
        ]
        for is_new in (True, False):
            assert mo_store.accept([(mo, sequence) for mo in mos]) == [is_new] * len(mos)

    def test_a_repeat_of_one_that_an_earlier_version_took_in(self, sms_redis: Any) -> None:
        sequence = (NODE, TS, 1)
        sms_redis.set(keys.mo_seen(*sequence), "1", ex=60)
        assert mo_store.accept([(self.mo(1), sequence)]) == [False]
        part = self.mo(2, content=b"1")
        mo_store.keep_part(keys.mo_part("86138", "10655", 3, 2), 1, 2, part, sequence)
        assert not sms_redis.exists(keys.MO_PARTS)

    def test_another_part_under_a_used_sequence(self, sms_redis: Any) -> None:
        key, sequence = keys.mo_part("86138", "10655", 3, 2), (NODE, TS, 1)
        assert mo_store.accept([(self.mo(1, content=b"short"), sequence)]) == [True]
        whats = [
            mo_store.keep_part(key, number, 2, self.mo(number, content=b"same"), sequence).what
            for number in (1, 1, 2)
        ]
        assert whats == ["waiting", "waiting", "whole"]

    def test_hundreds_are_one_step(self, sms_redis: Any) -> None:
        mos = [(self.mo(number), (NODE, TS, number)) for number in range(300)]
        assert mo_store.accept(mos) == [True] * 300
        taken = store.take(keys.LIST_MO, keys.MO_REPORTING, 500, 60).entries
        assert taken == [mo.id for mo, _ in mos]
        assert mo_store.read(taken) == [mo for mo, _ in mos]

    def test_parts_in_any_order(self, sms_redis: Any) -> None:
        key = keys.mo_part("86138", "10655", 3, 3)
        for number in (3, 1, 1):
            part = self.mo(number, content=b"%d" % number)
            kept_now = mo_store.keep_part(key, number, 3, part, (NODE, TS, number))
            assert (kept_now.what, kept_now.parts) == ("waiting", {})
        last = (2, 3, self.mo(2, content=b"2"), (NODE, TS, 2))
        whole = mo_store.keep_part(key, *last)
        assert whole.what == "whole"
        assert [whole.parts[number].content for number in (1, 2, 3)] == [b"1", b"2", b"3"]
        assert mo_store.keep_part(key, *last).what == "whole", (
            "until it is taken in, a repeat completes"
        )
        assert not mo_store.join_parts(key, self.mo(9), {1: whole.parts[1]}), (
            "two more came meanwhile"
        )
        assert mo_store.join_parts(key, self.mo(9), whole.parts)
        assert not mo_store.join_parts(key, self.mo(9), whole.parts)
        assert not sms_redis.exists(key)
        assert not sms_redis.exists(keys.MO_PARTS)
