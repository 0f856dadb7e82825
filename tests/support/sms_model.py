"""What becomes of short messages: a model without Redis, for test_sms_model.py.

Each method is one step of the lifecycle; it changes the model and gives the answer that Redis must
give. Time is a yes or a no: a lease, a schedule or a deadline is over, or it is far off.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from gateway.lifecycle.messages import ClaimedMessage, Finished, Mt, NewSubmit

RANK = {"": 0, "unknown": 1, "expired": 2, "delivered": 3, "failed": 3, "accepted": 3}


@dataclass
class Message:
    """`place`: pending, scheduled, held, or "" when all that is to be sent is in Submits."""

    mt: Mt
    parts: int
    gateway: int
    place: str = "pending"
    over: bool = True  # the schedule or the lease
    holder: str = ""  # who may put it into a Submit
    todo: set[int] = field(default_factory=set)  # parts to be sent again; none: all
    most: int = 0
    tries: int = 0
    unrefused: int = 0  # its Submits without a refusal
    accepted: set[int] = field(default_factory=set)
    reported: set[int] = field(default_factory=set)
    waits: bool | None = None  # for its Report; True: for too long
    refused: bool = False
    answered: set[int] = field(default_factory=set)  # parts whose response says something for good
    submits: int = 0
    final: str = ""
    published: set[str] = field(default_factory=set)
    passed_on: str = ""  # the ending with which it went on to the archive
    archived: str = ""
    archived_facts: int = 0
    gone: bool = False

    @property
    def is_open(self) -> bool:
        return not self.final and not self.gone

    @property
    def sent(self) -> bool:
        """Whether its gateway may have taken it."""
        return self.unrefused > 0

    @property
    def facts(self) -> int:
        return self.submits + len(self.answered) + len(self.reported)


@dataclass
class Packet:
    """A Submit. `result` is None as long as nobody knows what became of it."""

    name: str
    node: int
    gateway: int
    part: int
    frame: bytes
    users: dict[str, str]
    result: str | None = None
    waits: bool = True  # for its response
    repeats: int = 0


class Model:
    def __init__(self) -> None:
        self.messages: dict[str, Message] = {}
        self.packets: dict[str, Packet] = {}
        self.calls: dict[str, tuple[str, list[str]]] = {}
        self.unmatched = 0

    # -- what holds now --------------------------------------------------------------------------
    def members(self, packet: Packet) -> list[Message]:
        """Those that are not archived yet."""
        found = (self.messages[id] for id in packet.users.values())
        return [message for message in found if not message.gone]

    def kept(self) -> list[Packet]:
        return [packet for packet in self.packets.values() if self.members(packet)]

    def waiting(self) -> list[Packet]:
        return [packet for packet in self.kept() if packet.waits]

    def due(self, gateway: int) -> list[Packet]:
        return [packet for packet in self.waiting() if packet.gateway == gateway]

    def claimable(self, gateway: int) -> dict[str, Message]:
        return {
            id: message
            for id, message in self.messages.items()
            if message.is_open and message.gateway == gateway and message.place and message.over
        }

    # -- steps -----------------------------------------------------------------------------------
    def accept(self, messages: Iterable[Message], key: str, digest: str) -> tuple[str, list[str]]:
        """Hash and ids of the first call with this key, which may be this one."""
        new = list(messages)
        ids = [message.mt.id for message in new]
        if key and key in self.calls:
            return self.calls[key]
        self.messages.update(zip(ids, new, strict=True))
        if key:
            self.calls[key] = digest, ids
        return digest, ids

    def claim(self, gateway: int, holder: str, claimed: list[ClaimedMessage], over: bool) -> None:
        for message in self.claimable(gateway).values():
            if message.place == "scheduled":
                message.place = "pending"
        for item in claimed:
            message = self.messages[item.mt.id]
            message.place, message.holder, message.over = "held", holder, over

    def submit(self, gateway: int, holder: str, new: list[NewSubmit], over: bool) -> list[str]:
        """The names of those that may be sent."""
        mine = [
            submit
            for submit in new
            if all(self._may_send(member.id, holder) for member in submit.members)
            and not any(self.messages[member.id].final for member in submit.members)
        ]
        for submit in mine:
            users = {member.user_number: member.id for member in submit.members}
            self.packets[submit.name] = Packet(
                submit.name, submit.node, gateway, submit.part, submit.frame, users
            )
            for id in users.values():
                message = self.messages[id]
                message.unrefused += 1
                message.submits += 1
                message.todo.discard(submit.part)
        for id in {member.id for submit in mine for member in submit.members}:
            message = self.messages[id]
            message.holder = ""
            message.place, message.over = ("pending", True) if message.todo else ("", False)
            if not message.todo:
                message.most = 0
                message.waits = over
        return [submit.name for submit in mine]

    def _may_send(self, id: str, holder: str) -> bool:
        message = self.messages[id]
        return not message.gone and message.holder == holder

    def release(self, holder: str, ids: Iterable[str]) -> int:
        mine = [id for id in ids if self._may_send(id, holder)]
        for id in mine:
            message = self.messages[id]
            message.place, message.over, message.holder = "pending", True, ""
        return len(mine)

    def look(self, gateway: int) -> dict[str, bool]:
        """What waits for a gateway, and whether it was in a Submit."""
        waiting = self.claimable(gateway)
        for message in waiting.values():
            message.place, message.holder = "pending", ""
        return {id: message.sent for id, message in waiting.items()}

    def divert(self, ids: Iterable[str], to: int) -> int:
        """To another gateway, or with 0 to their end."""
        count = 0
        for message in (self.messages[id] for id in ids):
            if not to:
                message.place = ""
                count += self.end(message, "expired")
            elif not message.sent:
                message.gateway = to
                count += 1
        return count

    def end_held(self, holder: str, ids: Iterable[str], final: str) -> int:
        ended = 0
        for id in ids:
            if self._may_send(id, holder):
                self.messages[id].holder = ""
                ended += self.end(self.messages[id], final)
        return ended

    def end(self, message: Message, final: str) -> bool:
        """An ending is followed only by a better one."""
        if RANK[message.final] >= RANK[final]:
            return False
        message.final, message.waits = final, None
        return True

    def respond(self, name: str, verdict: str, result: str, over: bool, most_tries: int) -> str:
        packet = self.packets.get(name)
        if packet is None or not self.members(packet):
            return "unknown"
        if packet.result is not None:
            return "repeated"
        if verdict == "again" and packet.repeats:  # of the bytes before it says nothing
            return "unanswered"
        if verdict == "used":  # by itself, if the same bytes went out again
            verdict = "accepted" if packet.repeats else "refused"
        packet.result, packet.waits = result, False
        if verdict == "accepted":
            self._accepted(packet)
            return "done"
        still = [message for message in self.members(packet) if message.is_open]
        for message in self.members(packet):
            message.unrefused -= 1
            if not message.is_open:
                self._refused_late(message, packet, verdict)
        for message in still:
            if verdict == "again":
                self._again(message, packet.part, over, most_tries)
            else:
                self._refused(message, packet, len(still), most_tries)
        return "done"

    def _refused_late(self, message: Message, packet: Packet, verdict: str) -> None:
        """A refusal says more of a message than `unknown`, if it is alone to blame."""
        message.answered.add(packet.part)
        if verdict == "refused" and len(packet.users) == 1 and message.final == "unknown":
            message.refused = True
            self.end(message, "failed")

    def _refused(self, message: Message, packet: Packet, still: int, most_tries: int) -> None:
        """Of several users any may be to blame: each of a pack is tried in a smaller one, down to a
        Submit of its own, and only what is refused alone has failed."""
        if len(packet.users) > 1:
            self._again(message, packet.part, True, most_tries, max(1, still // 2))
        else:
            message.refused = True
            message.answered.add(packet.part)
            self.end(message, "failed")

    def _accepted(self, packet: Packet) -> None:
        packet.result, packet.waits = "0", False
        for message in self.members(packet):
            if packet.part in message.accepted:
                continue
            message.accepted.add(packet.part)
            message.answered.add(packet.part)
            if len(message.accepted) == message.parts and message.mt.report_flag == 2:
                self.end(message, "accepted")

    def _again(
        self, message: Message, part: int, over: bool, most_tries: int, most: int = 0
    ) -> None:
        """Parts that come back one after the other are one try; halving a pack is none."""
        message.todo.add(part)
        if most:
            message.most = min(most, message.most or most)
        if message.place:
            if message.place == "scheduled":
                message.over = message.over and over
            return
        if not most:
            message.tries += 1
            if message.tries > most_tries:
                message.answered.add(part)
                self.end(message, "failed")
                return
        message.place, message.over = "scheduled", over

    def repeat(self, gateway: int, most: int) -> dict[str, bytes]:
        """The frames that are written once more."""
        again = {}
        for packet in self.due(gateway):
            packet.repeats += 1
            if packet.repeats <= most:
                again[packet.name] = packet.frame
                continue
            packet.waits = False
            for message in self.members(packet):
                self.end(message, "unknown")
        return again

    def report(self, name: str, node: int, user: str, state: int) -> str:
        packet = self.packets.get(name)
        message = self.messages.get(packet.users.get(user, "")) if packet else None
        if packet is None or message is None or message.gone or packet.node != node:
            self.unmatched += state != 1
            return "unmatched"
        if packet.result is None:
            self._accepted(packet)
        if state == 1:
            return "waiting"
        if packet.part in message.reported:
            return "repeated"
        message.reported.add(packet.part)
        if state:
            self.end(message, "failed")
        elif len(message.reported) == message.parts:
            self.end(message, "delivered")
        return "matched"

    def overdue(self) -> None:
        for message in self.messages.values():
            if message.is_open and message.waits:
                is_well = message.mt.report_flag == 0 and len(message.accepted) == message.parts
                lost = "unknown" if message.sent else "failed"
                self.end(message, "accepted" if is_well else lost)

    def pass_on(self, published: dict[str, str]) -> None:
        for id, final in published.items():
            if self.messages[id].final == final:
                self.messages[id].passed_on = final

    def forget(self, archived: Iterable[Finished]) -> set[str]:
        """Those that are gone now: their last ending was published, and is archived with all that
        is known."""
        gone = set()
        for id, final, facts in ((read.id, read.final, read.fact_count) for read in archived):
            message = self.messages[id]
            is_whole = message.final == final == message.passed_on and message.facts == facts
            if message.gone or is_whole:
                message.gone = True
                gone.add(id)
        return gone
