"""The life of short messages in Redis against a model: any steps, in any order, by anybody.

`sms_model.py` says what each step must answer, `sms_places.py` what must hold after it, and in the
end nothing may be lost and no key left. Three machines: one does everything; one only what becomes
of messages after they were sent, so that endings change while they are published and archived; one
does MOs.
"""

import os
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gateway.lifecycle import store
from gateway.lifecycle.mo_store import KeptPart
from tests.support.sms_mo_steps import TOTAL, MoSteps, Part
from tests.support.sms_model import Message, Packet
from tests.support.sms_steps import GATEWAYS, NODE, OVER, TEXTS, Steps

pytestmark = pytest.mark.usefixtures("sms_redis")

FULL = bool(os.environ.get("MSGPLATFORM_FULL_LOAD"))
EXAMPLES = int(os.environ.get("SMS_MODEL_EXAMPLES", 1500 if FULL else 60))

gateways = st.sampled_from([7, 7, 7, 8])
somebody = st.sampled_from(["anna", "bert"])
numbers = st.integers(0, 1000)
maybe = st.booleans()
verdicts = st.sampled_from(["accepted", "again", "refused", "used"])
few_or_all = st.sampled_from([1, 2, 1000, 1000])


class Endings(Steps):
    """Reports, silence, forwarders and pumps."""

    def kept(self) -> list[Message]:
        return [message for message in self.model.messages.values() if not message.gone]

    @initialize(counts=st.lists(st.integers(1, 3), max_size=2), flag=st.sampled_from([0, 1, 1, 2]))
    def some_were_sent(self, counts: list[int], flag: int) -> None:
        for count, text in zip(counts, TEXTS, strict=False):
            self.take_in(count, text, GATEWAYS[0], report_flag=flag)
        self.send_all(GATEWAYS[0], "anna", lost=True)

    @precondition(lambda self: self.model.waiting())
    @rule(way=gateways, most=st.integers(0, 2))
    def repeat(self, way: int, most: int) -> None:
        expected = self.model.repeat(way, most)
        assert dict(store.repeat(way, OVER, most, 1000)) == expected

    @precondition(lambda self: self.model.packets)
    @rule(which=numbers)
    def respond_late(self, which: int) -> None:
        name = list(self.model.packets)[which % len(self.model.packets)]
        self.answer(name, "accepted", at_once=True)

    @precondition(lambda self: self.model.kept())
    @rule(which=numbers, user=numbers, state=st.sampled_from([0, 0, 1, 2]))
    def report(self, which: int, user: int, state: int) -> None:
        packet = self.model.kept()[which % len(self.model.kept())]
        self.report_state(packet, list(packet.users)[user % len(packet.users)], state)

    @precondition(lambda self: self.model.packets)
    @rule(which=numbers, user=numbers, state=st.sampled_from([0, 1]))
    def report_late(self, which: int, user: int, state: int) -> None:
        packet = list(self.model.packets.values())[which % len(self.model.packets)]
        self.report_state(packet, list(packet.users)[user % len(packet.users)], state)

    @precondition(lambda self: any(message.waits for message in self.kept()))
    @rule()
    def overdue(self) -> None:
        self.model.overdue()
        store.end_overdue(1000)

    @precondition(lambda self: self.forwarding or any(m.passed_on != m.final for m in self.kept()))
    @rule(who=somebody, most=few_or_all, lost=maybe)
    def forward(self, who: str, most: int, lost: bool) -> None:
        self.forward_on(who, most, lost)

    @precondition(lambda self: self.pumping or any(message.passed_on for message in self.kept()))
    @rule(who=somebody, most=few_or_all, lost=maybe)
    def pump(self, who: str, most: int, lost: bool) -> None:
        self.pump_on(who, most, lost)

    @precondition(lambda self: self.forwarding or self.pumping)
    @rule(who=somebody)
    def a_forwarder_and_a_pump_die(self, who: str) -> None:
        self.forwarding.pop(who, None)
        self.pumping.pop(who, None)

    @rule(what=st.sampled_from(["schedules", "leases", "forwarders", "pumps", "reports"]))
    def time_passes(self, what: str) -> None:
        self.pass_time(what)


class Life(Endings):
    @rule(
        count=st.integers(1, 4),
        text=st.sampled_from(list(TEXTS)),
        flag=st.sampled_from([0, 1, 1, 2]),
        priority=st.sampled_from([0, 0, 9]),
        when=st.sampled_from([0.0, 1.0, 4e9]),
        way=gateways,
        key=st.sampled_from(["", "", "a", "b"]),
        digest=st.sampled_from(["x", "y"]),
    )
    def accept(self, flag: int, when: float, **call: Any) -> None:
        self.take_in(report_flag=flag, schedule_at=when, **call)

    @rule(way=gateways, holder=somebody, most=few_or_all, lost=maybe)
    def claim(self, way: int, holder: str, most: int, lost: bool) -> None:
        self.claim_some(way, holder, most, lost)

    @precondition(lambda self: any(self.model.claimable(way) for way in GATEWAYS))
    @rule(holder=somebody, lost=maybe)
    def send(self, holder: str, lost: bool) -> None:
        for way in GATEWAYS:
            self.send_all(way, holder, lost)

    @precondition(lambda self: any(self.hands.values()))
    @rule(which=numbers, count=st.integers(1, 6), lost=maybe)
    def submit(self, which: int, count: int, lost: bool) -> None:
        self.send_some(self.a_hand(which), count, lost)

    @precondition(lambda self: any(self.hands.values()))
    @rule(which=numbers, count=st.integers(1, 6))
    def release(self, which: int, count: int) -> None:
        holder, way = whose = self.a_hand(which)
        ids = [item.mt.id for item in self.out_of(whose, count)]
        expected = self.model.release(holder, ids)
        assert store.release(way, holder, ids) == expected

    @precondition(lambda self: any(self.model.claimable(way) for way in GATEWAYS))
    @rule(way=gateways, page=few_or_all, each=st.integers(1, 3), to=st.sampled_from([0, 7, 8]))
    def reroute(self, way: int, page: int, each: int, to: int) -> None:
        self.reroute_some(way, page, each, to)

    @precondition(lambda self: any(self.hands.values()))
    @rule(which=numbers, count=st.integers(1, 3), final=st.sampled_from(["expired", "failed"]))
    def end(self, which: int, count: int, final: str) -> None:
        holder, way = whose = self.a_hand(which)
        ids = [item.mt.id for item in self.out_of(whose, count)]
        expected = self.model.end_held(holder, ids, final)
        assert store.end(way, holder, [(id, final, "") for id in ids]) == expected

    @precondition(lambda self: any(self.hands.values()))
    @rule(which=somebody)
    def a_sender_dies(self, which: str) -> None:
        for holder, way in self.hands:
            if holder == which:
                self.hands[holder, way] = {}

    @precondition(lambda self: self.model.waiting())
    @rule(which=numbers, verdict=verdicts, at_once=maybe)
    def respond(self, which: int, verdict: str, at_once: bool) -> None:
        waiting = self.model.waiting()
        self.answer(waiting[which % len(waiting)].name, verdict, at_once)

    @precondition(lambda self: self.model.packets)
    @rule(which=numbers, verdict=verdicts)
    def respond_twice_or_late(self, which: int, verdict: str) -> None:
        self.answer(
            list(self.model.packets)[which % len(self.model.packets)], verdict, at_once=True
        )

    @precondition(lambda self: self.model.packets)
    @rule(which=numbers, what=st.sampled_from(["user", "node", "name"]), verdict=verdicts)
    def about_nothing(self, which: int, what: str, verdict: str) -> None:
        """A response and a Report for what is not there, or not so."""
        self.answer("1:1", verdict, at_once=True)
        packet = list(self.model.packets.values())[which % len(self.model.packets)]
        name = "1:1" if what == "name" else packet.name
        user = "0" if what == "user" else next(iter(packet.users))
        self.report_state(Packet(name, NODE + (what == "node"), 0, 1, b"", {}), user, 0)


class Mos(MoSteps):
    """Long MOs: two receivers, and references that are used again."""

    @rule(
        who=somebody,
        user=st.sampled_from(["8613800000001", "8613800000001", "8613800000002"]),
        number=st.integers(1, TOTAL),
        text=st.sampled_from(["a", "b"]),
    )
    def deliver(self, who: str, **part: Any) -> None:
        self.came.append(Part(**part, sequence=(1, 1, len(self.came))))
        self.receive(who, self.came[-1])

    @precondition(lambda self: self.came)
    @rule(who=somebody, which=numbers)
    def deliver_again(self, who: str, which: int) -> None:
        self.receive(who, self.came[which % len(self.came)])

    @precondition(lambda self: self.hands)
    @rule(which=numbers)
    def go_on_with_one(self, which: int) -> None:
        self.go_on(list(self.hands)[which % len(self.hands)])

    @rule(who=somebody)
    def a_receiver_dies(self, who: str) -> None:
        self.hands.pop(who, None)

    @rule(who=somebody)
    def read_late_ones(self, who: str) -> None:
        """Joined by the receiver's next step."""
        for key, parts in self.pass_time().items():
            part = next(part for part in self.came if part.key == key)
            self.hands[who] = part, KeptPart("whole", parts)


@pytest.mark.parametrize("machine", [Life, Endings, Mos])
def test_any_life_of_messages(machine: type[RuleBasedStateMachine]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(max_examples=EXAMPLES, stateful_step_count=50, deadline=None),
    )
