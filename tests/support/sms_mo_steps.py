"""Long MOs in Redis and in a model: parts in any order, over receivers that die between scripts,
references used again, repeats. Nothing that was answered may be missing in what is taken in."""

import sys
from dataclasses import dataclass
from typing import Any

import msgspec
from hypothesis.stateful import RuleBasedStateMachine, invariant

from gateway.connections import sms_redis
from gateway.lifecycle import keys, mo_store, store
from gateway.lifecycle.messages import Mo

TOTAL = 3
Sequence = tuple[int, int, int]


@dataclass
class Part:
    """One Deliver. `text` is that of its message, so that a mixture is seen."""

    user: str
    number: int
    text: str
    sequence: Sequence

    @property
    def key(self) -> str:
        return keys.mo_part(self.user, "10655", 1, TOTAL)

    @property
    def content(self) -> str:
        return f"{self.text}/{self.number} "


class MoSteps(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.client: Any = sms_redis()
        self.client.flushall()
        self.came: list[Part] = []
        self.hands: dict[str, tuple[Part, mo_store.KeptPart]] = {}
        # By key: number → content, and id of the Deliver that brought it.
        self.waiting: dict[str, dict[int, tuple[str, str]]] = {}
        self.seen: set[Sequence] = set()
        self.taken: list[str] = []
        self._ids = 0

    def receive(self, who: str, part: Part) -> None:
        """A receiver's first script; what follows from it is its next step."""
        self._ids += 1
        mo = Mo(
            id=str(2**60 + self._ids), user_number=part.user, sp_number="10655",
            content=part.content.encode(), parts=TOTAL,
        )  # fmt: skip
        kept = mo_store.keep_part(part.key, part.number, TOTAL, mo, part.sequence)
        expected = self._keep(part, mo.id)
        assert kept.what == expected
        if expected == "waiting":
            self.hands.pop(who, None)
        else:
            assert self._as_kept(kept.parts) == self.waiting[part.key]
            self.hands[who] = part, kept

    def _keep(self, part: Part, id: str) -> str:
        there = self.waiting.setdefault(part.key, {})
        if part.sequence not in self.seen:
            first, _id = there.setdefault(part.number, (part.content, id))
            if first != part.content:
                return "cut"
            self.seen.add(part.sequence)
        return "whole" if len(there) == TOTAL else "waiting"

    def go_on(self, who: str) -> None:
        part, kept = self.hands.pop(who)
        self.join(part.key, kept.parts)
        if kept.what == "cut":
            self.receive(who, part)

    def join(self, key: str, parts: dict[int, Mo]) -> None:
        """Only what is still as it was read is taken in."""
        kept = self._as_kept(parts)
        text = "".join(kept[number][0] for number in sorted(kept))
        first = min(parts.values(), key=lambda part: int(part.id))
        whole = msgspec.structs.replace(
            first, text=text, content=text.encode(), missing=TOTAL - len(parts)
        )
        is_same = self.waiting.get(key) == kept
        assert mo_store.join_parts(key, whole, parts) == is_same
        if is_same:
            self.waiting[key] = {}
            self.taken.append(text)

    @staticmethod
    def _as_kept(parts: dict[int, Mo]) -> dict[int, tuple[str, str]]:
        return {number: (part.content.decode(), part.id) for number, part in parts.items()}

    def pass_time(self) -> dict[str, dict[int, Mo]]:
        """All that waits has waited long enough; another step may come before it is joined."""
        if entries := self.client.zrange(keys.MO_PARTS, 0, -1):
            self.client.zadd(keys.MO_PARTS, dict.fromkeys(entries, 0), xx=True)
        late = mo_store.late_parts(1000)
        assert {key: self._as_kept(parts) for key, parts in late.items()} == {
            key: parts for key, parts in self.waiting.items() if parts
        }
        return late

    @invariant()
    def redis_is_as_the_model(self) -> None:
        there = {key: parts for key, parts in self.waiting.items() if parts}
        entries = {key.decode() for key in self.client.zrange(keys.MO_PARTS, 0, -1)}
        assert entries == set(there)
        for key, parts in there.items():
            rows = {int(n): row for n, row in self.client.hgetall(key).items()}
            assert set(rows) == set(parts)
        assert self.client.llen(keys.LIST_MO) == len(self.taken)

    def teardown(self) -> None:
        if sys.exc_info()[0] is not None:
            return
        for key, parts in self.pass_time().items():
            self.join(key, parts)
        texts = " ".join(self.taken)
        for part in self.came:
            assert part.sequence not in self.seen or part.content in texts, f"{part} was lost"
        ids = store.take(keys.LIST_MO, keys.MO_REPORTING, 1000, 60).entries
        assert [mo.text for mo in mo_store.read(ids)] == self.taken
        store.pass_on(keys.MO_REPORTING, keys.LIST_MO_FINISH, ids)
        mo_store.forget(store.take(keys.LIST_MO_FINISH, keys.MO_FINISHING, 1000, 60).entries)
        left = {key.decode().removeprefix(keys.PREFIX) for key in self.client.keys("*")}
        assert {name for name in left if not name.startswith("mo-seen:")} <= {"mo-GID"}
