"""No text is taken twice, whatever becomes of bytes and answers on their way.

The sender's rules and the store against gateways that keep to the specification and no more: they
take a sequence once, may be too busy before they look at it, and refuse for good. Bytes are lost
and written again, come late, or are repeated by another process; answers are lost, or overtake each
other.
"""

import os
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gateway.connections import sms_redis
from gateway.lifecycle import keys, store
from gateway.lifecycle.messages import NewSubmit
from gateway.sender import rerouting
from gateway.sender.packing import Counters, make_packs, make_submits
from gateway.sender.pending_submits import response
from gateway.sgip import Result
from gateway.sgip.constants import THROTTLED
from tests.support.sms_net_support import accept, mt
from tests.support.sms_steps import GATEWAYS, NEVER, OVER, TEXTS, gateway

pytestmark = pytest.mark.usefixtures("sms_redis")

FULL = bool(os.environ.get("MSGPLATFORM_FULL_LOAD"))
EXAMPLES = int(os.environ.get("SMS_MODEL_EXAMPLES", 1500 if FULL else 100))
TRIES, REPEATS = 30, 2
numbers = st.integers(0, 1000)
somebody = st.sampled_from(["anna", "bert"])
ways = st.sampled_from(GATEWAYS)


@dataclass(frozen=True)
class Copy:
    """Bytes on their way, or their answer; `repeated` as the link knows it. With a link that was
    lost, the answer is lost too."""

    name: str
    repeated: bool
    result: int = 0
    is_mute: bool = False


class Once(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.client: Any = sms_redis()
        self.client.flushall()
        self.submits: dict[str, NewSubmit] = {}
        self.results: dict[str, int] = {}  # what a gateway remembers of a sequence
        self.coming: list[Copy] = []
        self.answers: list[Copy] = []
        self.claimed: dict[tuple[str, int], list[Any]] = {}
        self._accepted = 0

    @initialize(count=st.integers(1, 3), text=st.sampled_from(list(TEXTS)))
    def something_was_sent(self, count: int, text: str) -> None:
        self.accept(count, text, GATEWAYS[0])
        self.send("anna", is_over=False)

    @precondition(lambda self: self._accepted < 4)
    @rule(count=st.integers(1, 3), text=st.sampled_from(list(TEXTS)), first=ways)
    def accept(self, count: int, text: str, first: int) -> None:
        route = [first, *(way for way in GATEWAYS if way != first)]
        accept(*(mt(self._accepted + n, route, text=text) for n in range(count)))
        self._accepted += count

    @rule(who=somebody, way=ways, is_over=st.booleans())
    def claim(self, who: str, way: int, is_over: bool) -> None:
        """What is to be tried again later is due."""
        if ids := self.client.zrange(keys.scheduled(way), 0, -1):
            self.client.zadd(keys.scheduled(way), dict.fromkeys(ids, 0))
        held = self.claimed.setdefault((who, way), [])
        ids = {item.mt.id for item in held}
        lease = OVER if is_over else NEVER
        held += [item for item in store.claim(way, who, 100, lease) if item.mt.id not in ids]

    @rule(who=somebody, is_over=st.booleans())
    def send(self, who: str, is_over: bool) -> None:
        for way in GATEWAYS:
            self.claim(who, way, is_over)
            self.send_what_is_held(who, way)

    @precondition(lambda self: any(self.claimed.values()))
    @rule(who=somebody, way=ways)
    def send_what_is_held(self, who: str, way: int) -> None:
        if held := self.claimed.pop((who, way), []):
            new = make_submits(make_packs(held, gateway(way)), gateway(way), Counters())
            for one in store.submit(way, who, new, OVER, NEVER):
                self.submits[one.name] = one
                self.coming.append(Copy(one.name, repeated=False))

    @rule(way=ways)
    def repeat(self, way: int) -> None:
        due = store.repeat(way, OVER, REPEATS, 100)
        self.coming += [Copy(name, repeated=True) for name, _frame in due]

    @precondition(lambda self: self.coming)
    @rule(which=numbers, arrives=st.booleans())
    def lose_a_link(self, which: int, arrives: bool) -> None:
        """The next one writes the bytes again; the first ones may arrive all the same."""
        copy = self.coming.pop(which % len(self.coming))
        if arrives:
            self.coming.append(replace(copy, is_mute=True))
        self.coming.append(Copy(copy.name, repeated=True))

    @precondition(lambda self: self.coming)
    @rule(
        which=numbers,
        manner=st.sampled_from(["take", "take", "busy", "busy", "refuse"]),
        answer=st.sampled_from(["at once", "at once", "later", "never"]),
        says_used=st.booleans(),
    )
    def arrive(self, which: int, manner: str, answer: str, says_used: bool) -> None:
        copy = self.coming.pop(which % len(self.coming))
        if manner == "busy":
            result = THROTTLED
        elif copy.name in self.results:
            result = self.results[copy.name]
            result = int(Result.SEQUENCE) if says_used and not result else result
        else:
            refused = int(Result.PHONE_NUMBER)
            result = self.results[copy.name] = refused if manner == "refuse" else 0
        answered = Copy(copy.name, copy.repeated, result)
        if copy.is_mute:
            return
        if answer == "at once":
            self._respond(answered)
        elif answer == "later":
            self.answers.append(answered)

    @precondition(lambda self: self.answers)
    @rule(which=numbers)
    def answer(self, which: int) -> None:
        self._respond(self.answers.pop(which % len(self.answers)))

    def _respond(self, copy: Copy) -> None:
        store.respond([response(copy.name, copy.result, is_repeated=copy.repeated, tries=0)], TRIES)

    @rule(way=ways)
    def a_gateway_goes(self, way: int) -> None:
        """Its messages take the other way, as far as they may."""
        other = next(each for each in GATEWAYS if each != way)
        seen, _following = rerouting.look(way, "walker", rerouting.FRONT, 1000)
        rerouting.divert(way, [(one, other) for one in seen])

    @invariant()
    def each_part_is_taken_once(self) -> None:
        taken: dict[tuple[str, int], str] = {}
        for name in (name for name, result in self.results.items() if not result):
            submit = self.submits[name]
            for member in submit.members:
                before = taken.setdefault((member.id, submit.part), name)
                assert before == name, f"{member.id}, part {submit.part}: {before} and {name}"


def test_no_text_is_taken_twice() -> None:
    run_state_machine_as_test(
        Once, settings=settings(max_examples=EXAMPLES, stateful_step_count=40, deadline=None)
    )
