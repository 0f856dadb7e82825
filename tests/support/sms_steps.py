"""Steps of the life of short messages, each done in Redis and in the model of sms_model.py.

Holders, forwarders and pumps die by doing nothing more; a lease, a schedule or a deadline is over
at once, or far off until `time_passes`.
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from hypothesis.stateful import RuleBasedStateMachine, invariant

from gateway.connections import sms_redis
from gateway.directory import Gateway
from gateway.lifecycle import keys, store
from gateway.lifecycle.messages import (
    ClaimedMessage,
    Finished,
    Mt,
    ReportIn,
    Response,
    WaitingMessage,
)
from gateway.models import SmsGateway
from gateway.sender import rerouting
from gateway.sender.packing import Counters, make_packs, make_submits
from tests.support.sms_model import Message, Model, Packet
from tests.support.sms_places import Places

GATEWAYS, NODE, TRIES, USERS = (7, 8), 3010099999, 2, 3
TEXTS = {"短": 1, "长" * 100: 2, "很长" * 80: 3}  # and the number of their parts
RESULTS = {"accepted": 0, "again": 11, "refused": 5, "used": 9}
OVER, NEVER = 1e-6, 10_000.0


def seconds(over: bool) -> float:
    return OVER if over else NEVER


def gateway(number: int) -> Gateway:
    return Gateway(SmsGateway(pk=number, users_per_submit=USERS), number, NODE, (), "", "")


@dataclass
class Work:
    """Messages in the hands of a forwarder or a pump, as it read them."""

    read: list[Finished] = field(default_factory=list)
    leased: store.Lease = field(default_factory=lambda: store.Lease([], "", 0.0))
    is_written: bool = False


class Steps(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.client: Any = sms_redis()
        self.client.flushall()
        self.model = Model()
        self.hands: dict[tuple[str, int], dict[str, ClaimedMessage]] = {}
        self.forwarding: dict[str, Work] = {}
        self.pumping: dict[str, Work] = {}
        self._made = 0

    # -- intake ----------------------------------------------------------------------------------
    def take_in(
        self, count: int, text: str, way: int, key: str = "", digest: str = "", **fields: Any
    ) -> None:
        """A call, whose script runs twice: the connection broke before its answer came."""
        made = [self._mt(number, text, way, **fields) for number in range(count)]
        is_repeat = key in self.model.calls
        place = ("scheduled", False) if fields.get("schedule_at", 0) > 1 else ("pending", True)
        first = self.model.accept(
            [Message(mt, TEXTS[text], way, *place) for mt in made], key, digest
        )
        for again in (False, True):
            (known,) = store.accept([store.Call(made, 1, key, digest)], 86_400)
            if is_repeat or (again and key):
                assert known is not None
                assert (known.hash, known.ids) == first
            else:
                assert known is None

    def _mt(self, place: int, text: str, way: int, **fields: Any) -> Mt:
        self._made += 1
        return Mt(
            id=str(2**60 + self._made), biz=1, account=1, user_number=f"86138{place:08d}",
            text=text, sp_number="10655", corp_id="99999", gateways=[way], **fields,
        )  # fmt: skip

    # -- senders ---------------------------------------------------------------------------------
    def claim_some(self, way: int, holder: str, most: int, lost: bool) -> None:
        may = {
            id: (sorted(message.todo) if message.sent else [], message.most, message.tries)
            for id, message in self.model.claimable(way).items()
        }
        claimed = store.claim(way, holder, most, seconds(lost))
        got = {
            item.mt.id: (list(item.part_numbers), item.max_users, item.tries) for item in claimed
        }
        assert len(got) == len(claimed) <= most
        assert {id: may.get(id) for id in got} == got
        assert len(got) == len(may) or most < len(self.model.messages)
        self.model.claim(way, holder, claimed, lost)
        hand = self.hands.setdefault((holder, way), {})
        for item in claimed:  # as the sender does: what it holds already stays as it was
            hand.setdefault(item.mt.id, item)

    def send_some(self, whose: tuple[str, int], count: int, lost: bool) -> None:
        """The oldest of somebody's hand; their Reports may be overdue at once."""
        (holder, way), some = whose, self.out_of(whose, count)
        new = make_submits(make_packs(some, gateway(way)), gateway(way), Counters())
        bounds = {item.mt.id: item.max_users or USERS for item in some}
        for submit in new:
            assert len(submit.members) <= min(bounds[member.id] for member in submit.members)
        expected = self.model.submit(way, holder, new, lost)
        mine = store.submit(way, holder, new, OVER, seconds(lost))
        assert [submit.name for submit in mine] == expected

    def send_all(self, way: int, holder: str, lost: bool = False) -> bool:
        """Whether there was any."""
        self.claim_some(way, holder, 1000, lost=False)
        if not self.hands[holder, way]:
            return False
        self.send_some((holder, way), 1000, lost)
        return True

    def reroute_some(self, way: int, page: int, each: int, to: int) -> None:
        """Look at all that waits, then move every n-th of it; what was moved is not there twice."""
        expected = self.model.look(way)
        place: rerouting.Place | None = rerouting.FRONT
        found: list[WaitingMessage] = []
        while place is not None:
            some, place = rerouting.look(way, "walker", place, page)
            assert len(some) <= page
            found += some
        assert len(found) == len(expected)
        assert {one.mt.id: one.was_sent for one in found} == expected
        if to == way:
            return
        leaving = found[::each]
        count = self.model.divert([one.mt.id for one in leaving], to)
        assert rerouting.divert(way, [(one, to) for one in leaving]) == count
        if count == len(leaving):
            assert rerouting.divert(way, [(one, to) for one in leaving]) == 0

    def out_of(self, whose: tuple[str, int], count: int) -> list[ClaimedMessage]:
        hand = self.hands[whose]
        return [hand.pop(id) for id in list(hand)[:count]]

    def a_hand(self, which: int) -> tuple[str, int]:
        filled = [whose for whose, hand in self.hands.items() if hand]
        return filled[which % len(filled)]

    # -- what gateways report ---------------------------------------------------------------------
    def answer(self, name: str, verdict: str, at_once: bool) -> None:
        expected = self.model.respond(name, verdict, str(RESULTS[verdict]), at_once, TRIES)
        given = Response(name, RESULTS[verdict], verdict, seconds(at_once))
        assert store.respond([given], TRIES) == [expected]

    def report_state(self, packet: Packet, user: str, state: int) -> None:
        expected = self.model.report(packet.name, packet.node, user, state)
        seqno, ts = map(int, packet.name.split(":"))
        given = ReportIn(seqno, ts, packet.node, user, state, 25 if state == 2 else 0)
        assert store.report([given]) == [expected]

    # -- forwarders and pumps --------------------------------------------------------------------
    def forward_on(self, who: str, most: int, lost: bool) -> None:
        """Its next step: take and read, publish, pass on."""
        work = self.forwarding.setdefault(who, Work())
        if not work.read:
            self._take(work, keys.LIST_REPORT, keys.REPORTING, most, lost)
        elif not work.is_written:
            work.is_written = True
            for message in work.read:
                assert message.final, "it has no ending to publish"
                self.model.messages[message.id].published.add(message.final)
        else:
            read = {m.id: m.final for m in self.forwarding.pop(who).read}
            self.model.pass_on(read)
            store.finish_published(read)

    def pump_on(self, who: str, most: int, lost: bool) -> None:
        """Its next step: take and read, write, forget."""
        work = self.pumping.setdefault(who, Work())
        if not work.read:
            self._take(work, keys.LIST_FINISH, keys.FINISHING, most, lost)
        elif not work.is_written:
            if not store.is_leased(work.leased, [message.id for message in work.read]):
                del self.pumping[who]  # another pump has taken one over, and may have written it
                return
            work.is_written = True
            for read in work.read:
                message = self.model.messages[read.id]
                if not message.gone:
                    message.archived, message.archived_facts = read.final, read.fact_count
        else:
            archived = self.pumping.pop(who).read
            expected = self.model.forget(archived)
            assert store.forget(archived) == expected

    def _take(self, work: Work, source: str, leased: str, most: int, lost: bool) -> None:
        """As they were read at once."""
        work.leased = store.take(source, leased, most, seconds(lost))
        ids = work.leased.entries
        assert len(ids) == len(set(ids)) <= most
        work.read = store.read(ids)
        store.drop(leased, list(set(ids).difference(message.id for message in work.read)))

    # -- time ------------------------------------------------------------------------------------
    def pass_time(self, what: str) -> None:
        names = {
            "schedules": [keys.scheduled(way) for way in GATEWAYS],
            "leases": [keys.claimed(way) for way in GATEWAYS],
            "forwarders": [keys.REPORTING],
            "pumps": [keys.FINISHING],
            "reports": [keys.REPORT_DUE],
        }[what]
        for name in names:
            if entries := self.client.zrange(name, 0, -1):
                self.client.zadd(name, dict.fromkeys(entries, 0), xx=True)
        place = {"schedules": "scheduled", "leases": "held"}.get(what)
        for message in self.model.messages.values():
            if message.place == place:
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
            assert message.archived_facts == message.facts, f"{id}: not all of it is archived"
        left = {key.decode().removeprefix(keys.PREFIX) for key in self.client.keys("*")}
        left = {
            name for name in left if not name.startswith(("idempotency:", "walker:", "accepted:"))
        }
        assert left <= {"mt-GID", "mt-minutes", "seqno", "list:report-unmatched"}
        assert int(self.client.get(keys.MT_COUNT) or 0) == len(self.model.messages)
        assert self.client.llen(keys.LIST_UNMATCHED) == self.model.unmatched

    def _drain(self) -> None:
        """Everything goes well from here on."""
        for what in ("schedules", "leases", "forwarders", "pumps"):
            self.pass_time(what)
        self.hands.clear()
        for way in GATEWAYS:
            while self.send_all(way, "drain"):
                pass
        for packet in self.model.waiting():
            self.answer(packet.name, "accepted", at_once=False)
        self._report_all(self.model.kept())
        for step in (self.forward_on, self.pump_on) * 3:  # an ending may have changed meanwhile
            for _ in range(3):
                step("drain", 100_000, lost=True)

    def _report_all(self, packets: Iterable[Packet]) -> None:
        for packet in packets:
            for user, id in packet.users.items():
                if self.model.messages[id].is_open:
                    self.report_state(packet, user, 0)
