"""The life of short messages in Redis against a model: any steps, in any order, by anybody.

Holders, forwarders and pumps die by doing nothing more; their leases are over at once or never,
until `time_passes`. `sms_model.py` says what each step must answer, and what must hold after it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gateway.directory import Gateway
from gateway.lifecycle import keys, store
from gateway.lifecycle.messages import Claimed, Mt, ReportIn, Response
from gateway.models import SmsGateway
from gateway.packing import packs, submits
from msgplatform.core.connections import sms_redis
from tests.integration.sms_model import Message, Model, Packet
from tests.integration.sms_places import Places

pytestmark = pytest.mark.usefixtures("sms_redis")

FULL = bool(os.environ.get("MSGPLATFORM_FULL_LOAD"))
EXAMPLES = int(os.environ.get("SMS_MODEL_EXAMPLES", 1500 if FULL else 60))
GATEWAYS, HOLDERS, NODE, TRIES = (7, 8), ("anna", "bert"), 3010099999, 2
TEXTS = {"短": 1, "长" * 100: 2, "很长" * 80: 3}  # and the number of their parts
OVER, NEVER = 1e-6, 10_000.0

gateways = st.sampled_from([7, 7, 7, 8])
holders = st.sampled_from(HOLDERS)
numbers = st.integers(0, 1000)
over = st.booleans()
verdicts = st.sampled_from(["accepted", "again", "refused"])


def seconds(over: bool) -> float:
    """A lease, a delay or a patience that is over at once, or that lasts."""
    return OVER if over else NEVER


def gateway(number: int) -> Gateway:
    return Gateway(SmsGateway(pk=number, users_per_submit=3), number, NODE, ())


class Life(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.client: Any = sms_redis()
        self.client.flushall()
        self.model = Model()
        self.accepted = 0
        self.hands: dict[tuple[str, int], dict[str, Claimed]] = {}
        self.forwarding: dict[str, dict[str, str]] = {}
        self.pumping: dict[str, dict[str, str]] = {}

    # -- intake ----------------------------------------------------------------------------------
    @rule(
        count=st.integers(1, 4),
        text=st.sampled_from(list(TEXTS)),
        flag=st.sampled_from([1, 1, 2]),
        priority=st.sampled_from([0, 0, 9]),
        when=st.sampled_from([0.0, 1.0, 4e9]),
        way=gateways,
        key=st.sampled_from(["", "", "a", "b"]),
        digest=st.sampled_from(["x", "y"]),
        twice=st.booleans(),
    )
    def accept(
        self, count: int, text: str, flag: int, priority: int, when: float, way: int, key: str,
        digest: str, twice: bool,
    ) -> None:  # fmt: skip
        made = [
            self._mt(n, text, report_flag=flag, priority=priority, schedule_at=when, way=way)
            for n in range(count)
        ]
        first = key in self.model.calls
        messages = [
            Message(mt, TEXTS[text], way, *(("scheduled", False) if when > 1 else ("pending",)))
            for mt in made
        ]
        digest, ids = self.model.accept(messages, key, digest)
        for repeat in range(1 + twice):
            (known,) = store.accept([store.Call(made, 1, key, digest)], 86_400)
            if first or (repeat and key):
                assert known is not None
                assert (known.hash, known.ids) == (digest, ids)
            else:
                assert known is None

    def _mt(self, place: int, text: str, way: int, **fields: Any) -> Mt:
        self.accepted += 1
        return Mt(
            id=str(2**60 + self.accepted), biz=1, account=1, user_number=f"86138{place:08d}",
            text=text, sp_number="10655", corp_id="99999", gateways=[way], **fields,
        )  # fmt: skip

    # -- senders ---------------------------------------------------------------------------------
    @rule(way=gateways, holder=holders, most=st.sampled_from([1, 3, 1000, 1000]), lost=over)
    def claim(self, way: int, holder: str, most: int, lost: bool) -> None:
        may = {
            id: (sorted(message.todo), message.most, message.tries)
            for id, message in self.model.claimable(way).items()
        }
        claimed = store.claim(way, holder, most, seconds(lost))
        got = {item.mt.id: (list(item.todo), item.most, item.tries) for item in claimed}
        assert len(got) == len(claimed) <= most
        assert got.items() <= may.items()
        assert len(got) == len(may) or most < 1000
        self.model.claim(way, holder, claimed, lost)
        hand = self.hands.setdefault((holder, way), {})
        for item in claimed:  # as the sender does: what it holds already stays as it was
            hand.setdefault(item.mt.id, item)

    @precondition(lambda self: any(self.model.claimable(way) for way in GATEWAYS))
    @rule(holder=holders, lost=over)
    def send(self, holder: str, lost: bool) -> None:
        """As it goes nearly always."""
        for way in GATEWAYS:
            self.claim(way, holder, 1000, lost=False)
            if self.hands[holder, way]:
                self._submit((holder, way), 1000, lost)

    @precondition(lambda self: any(self.hands.values()))
    @rule(which=numbers, count=st.integers(1, 6), lost=over)
    def submit(self, which: int, count: int, lost: bool) -> None:
        self._submit(self._a_hand(which), count, lost)

    def _submit(self, whose: tuple[str, int], count: int, lost: bool) -> None:
        (holder, way), some = whose, self._out_of(whose, count)
        new = submits(packs(some, gateway(way)), gateway(way))
        assert all(len(submit.members) <= 3 for submit in new)
        expected = self.model.submit(way, holder, new, lost)
        mine = store.submit(way, holder, new, OVER, seconds(lost))
        assert [submit.name for submit in mine] == expected

    def _a_hand(self, which: int) -> tuple[str, int]:
        filled = [whose for whose, hand in self.hands.items() if hand]
        return filled[which % len(filled)]

    def _out_of(self, whose: tuple[str, int], count: int) -> list[Claimed]:
        hand = self.hands[whose]
        return [hand.pop(id) for id in list(hand)[:count]]

    @precondition(lambda self: any(self.hands.values()))
    @rule(which=numbers, count=st.integers(1, 6), to=gateways)
    def release(self, which: int, count: int, to: int) -> None:
        holder, way = whose = self._a_hand(which)
        ids = [item.mt.id for item in self._out_of(whose, count)]
        expected = self.model.release(holder, ids, to)
        assert store.release(way, holder, ids, to) == expected

    @precondition(lambda self: any(self.hands.values()))
    @rule(which=numbers, count=st.integers(1, 3), final=st.sampled_from(["expired", "failed"]))
    def end(self, which: int, count: int, final: str) -> None:
        holder, way = whose = self._a_hand(which)
        ids = [item.mt.id for item in self._out_of(whose, count)]
        expected = self.model.end_held(holder, ids, final)
        assert store.end(way, holder, [(id, final, "") for id in ids]) == expected

    @precondition(lambda self: any(self.hands.values()))
    @rule(which=holders)
    def a_sender_dies(self, which: str) -> None:
        for holder, way in self.hands:
            if holder == which:
                self.hands[holder, way] = {}

    # -- what gateways answer --------------------------------------------------------------------
    @precondition(lambda self: self.model.waiting())
    @rule(which=numbers, verdict=verdicts, at_once=over)
    def respond(self, which: int, verdict: str, at_once: bool) -> None:
        waiting = self.model.waiting()
        self._respond(waiting[which % len(waiting)].name, verdict, at_once)

    @precondition(lambda self: self.model.packets)
    @rule(which=numbers, verdict=verdicts, at_once=over)
    def respond_late_or_again(self, which: int, verdict: str, at_once: bool) -> None:
        self._respond(list(self.model.packets)[which % len(self.model.packets)], verdict, at_once)

    @rule(verdict=verdicts)
    def respond_to_nothing(self, verdict: str) -> None:
        self._respond("1:1", verdict, at_once=True)

    def _respond(self, name: str, verdict: str, at_once: bool) -> None:
        result = {"accepted": "0", "again": "11", "refused": "5"}[verdict]
        expected = self.model.respond(name, verdict, result, at_once, TRIES)
        wait = -1.0 if at_once else NEVER
        given = Response(name, int(result), verdict, seconds(at_once))
        assert store.respond([given], wait, TRIES) == [expected]

    @precondition(lambda self: self.model.waiting())
    @rule(way=gateways, most=st.integers(0, 2))
    def repeat(self, way: int, most: int) -> None:
        expected = self.model.repeat(way, most)
        assert dict(store.due(way, OVER, most, 1000)) == expected

    @precondition(lambda self: self.model.packets)
    @rule(which=numbers, user=numbers, state=st.sampled_from([0, 0, 1, 2]), at_once=over)
    def report(self, which: int, user: int, state: int, at_once: bool) -> None:
        packet = list(self.model.packets.values())[which % len(self.model.packets)]
        users = list(packet.users)
        self._report(packet, users[user % len(users)], state, at_once)

    @precondition(lambda self: self.model.packets)
    @rule(which=numbers, what=st.sampled_from(["user", "node", "name"]))
    def report_of_nothing(self, which: int, what: str) -> None:
        packet = list(self.model.packets.values())[which % len(self.model.packets)]
        name = "1:1" if what == "name" else packet.name
        node, user = NODE + (what == "node"), next(iter(packet.users))
        self._report(
            Packet(name, node, 0, 1, b"", {}), "0" if what == "user" else user, 0, at_once=False
        )

    def _report(self, packet: Packet, user: str, state: int, at_once: bool) -> None:
        expected = self.model.report(packet.name, packet.node, user, state, at_once)
        seqno, ts = map(int, packet.name.split(":"))
        given = ReportIn(seqno, ts, packet.node, user, state, 25 if state == 2 else 0)
        assert store.report([given], -1.0 if at_once else NEVER) == [expected]

    @precondition(lambda self: any(m.waits is not None for m in self._kept()))
    @rule()
    def overdue(self) -> None:
        self.model.overdue()
        store.overdue(1000)

    # -- forwarders and pumps --------------------------------------------------------------------
    @precondition(lambda self: any(m.final != m.passed_on for m in self._kept()))
    @rule(who=holders, most=st.sampled_from([1, 1000]), lost=over)
    def take_endings(self, who: str, most: int, lost: bool) -> None:
        """What it took before is left to its lease."""
        ids = store.take(keys.LIST_REPORT, keys.REPORTING, most, seconds(lost))
        assert len(ids) == len(set(ids)) <= most
        self.forwarding[who] = {message.id: message.final for message in store.read(ids)}
        store.drop(keys.REPORTING, [id for id in ids if id not in self.forwarding[who]])

    def _kept(self) -> list[Message]:
        return [message for message in self.model.messages.values() if not message.gone]

    @precondition(lambda self: self.forwarding)
    @rule(who=holders)
    def publish(self, who: str) -> None:
        for id, final in self.forwarding.get(who, {}).items():
            assert final, "it has no ending to publish"
            self.model.messages[id].published.add(final)

    @precondition(lambda self: self.forwarding)
    @rule(who=holders)
    def pass_on(self, who: str) -> None:
        read = self.forwarding.pop(who, {})
        published = {
            id: final for id, final in read.items() if final in self.model.messages[id].published
        }
        for id, final in published.items():
            message = self.model.messages[id]
            if message.final == final:
                message.passed_on = final
        store.published(published)

    @precondition(lambda self: any(message.passed_on for message in self._kept()))
    @rule(who=holders, most=st.sampled_from([1, 1000]), lost=over)
    def take_for_archive(self, who: str, most: int, lost: bool) -> None:
        ids = store.take(keys.LIST_FINISH, keys.FINISHING, most, seconds(lost))
        assert len(ids) == len(set(ids)) <= most
        self.pumping[who] = {message.id: message.final for message in store.read(ids)}
        store.drop(keys.FINISHING, [id for id in ids if id not in self.pumping[who]])

    @precondition(lambda self: self.pumping)
    @rule(who=holders)
    def archive(self, who: str) -> None:
        for id, final in self.pumping.get(who, {}).items():
            message = self.model.messages[id]
            if not message.gone:  # else a pump that lost its lease writes what it had read
                message.archived = final

    @precondition(lambda self: self.pumping)
    @rule(who=holders)
    def forget(self, who: str) -> None:
        read = self.pumping.pop(who, {})
        messages = self.model.messages
        archived = {
            id: final
            for id, final in read.items()
            if messages[id].gone or messages[id].archived == final
        }
        expected = self.model.forget(archived)
        assert store.forget(archived) == expected

    @precondition(lambda self: self.model.messages)
    @rule(what=st.sampled_from(["schedule", "leases", "forwarders", "pumps", "reports"]))
    def time_passes(self, what: str) -> None:
        """Deadlines and leases that were far away are over."""
        names = {
            "schedule": [keys.scheduled(way) for way in GATEWAYS],
            "leases": [keys.claimed(way) for way in GATEWAYS],
            "forwarders": [keys.REPORTING],
            "pumps": [keys.FINISHING],
            "reports": [keys.REPORT_DUE],
        }[what]
        for name in names:
            if entries := self.client.zrange(name, 0, -1):
                self.client.zadd(name, dict.fromkeys(entries, 0), xx=True)
        place = {"schedule": "scheduled", "leases": "held"}.get(what)
        for message in self.model.messages.values():
            if place and message.place == place:
                message.over = True
            if what == "reports" and message.waits is False:
                message.waits = True

    # -- what must hold --------------------------------------------------------------------------
    @invariant()
    def redis_is_as_the_model(self) -> None:
        Places(self.client, GATEWAYS, self.model).check()

    def teardown(self) -> None:
        if sys.exc_info()[0] is not None:
            return  # something failed already
        self._drain()
        for id, message in self.model.messages.items():
            assert message.gone, f"{id} was lost"
            assert message.final in message.published, f"{id}: {message.final} was never published"
            assert message.archived == message.final
        left = {key.decode().removeprefix(keys.PREFIX) for key in self.client.keys("*")}
        kept = {"mt-GID", "seqno", "list:report-unmatched"}
        assert {name for name in left if not name.startswith("idempotency:")} <= kept
        assert int(self.client.get(keys.MT_COUNT) or 0) == len(self.model.messages)
        assert self.client.llen(keys.LIST_UNMATCHED) == self.model.unmatched

    def _drain(self) -> None:
        """Everything goes well from here on."""
        for what in ("schedule", "leases", "forwarders", "pumps"):
            self.time_passes(what)
        self.hands.clear()
        for way in GATEWAYS:
            while self._claim_for_drain(way):
                pass
        for packet in self.model.waiting():
            self._respond(packet.name, "accepted", at_once=False)
        self._report_all(self.model.kept())
        for _ in range(3):  # an ending may have changed while it was archived
            for step in (self.take_endings, self.take_for_archive):
                step("drain", 100_000, lost=True)
                (self.publish if step == self.take_endings else self.archive)("drain")
                (self.pass_on if step == self.take_endings else self.forget)("drain")

    def _claim_for_drain(self, way: int) -> bool:
        self.claim(way, "drain", 1000, lost=False)
        if self.hands.get(("drain", way)):
            self._submit(("drain", way), 100_000, lost=False)
            return True
        return False

    def _report_all(self, packets: Iterable[Packet]) -> None:
        for packet in packets:
            for user, id in packet.users.items():
                if self.model.messages[id].is_open:
                    self._report(packet, user, 0, at_once=False)


def test_any_life_of_messages() -> None:
    run_state_machine_as_test(
        Life,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
