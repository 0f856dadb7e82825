"""What the SMS crash test sends, and what must become of it: known before, by this list alone.

The list has no end: the test takes as much of it as its kills need.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

SYSTEMS = {"clinic": "10655001", "bank": "10655002"}  # with the number that each sends from
_APART = 1_000_000  # messages of one system; the next one's numbers begin there
_MANY = 10  # recipients of one text, now and then


@dataclass(frozen=True)
class Operator:
    """A gateway: whose numbers it takes, how its simulator behaves, what its users' messages
    end as, in order."""

    prefix: str
    node_id: int
    endings: tuple[str, ...]
    manners: tuple[str, ...]
    row: dict[str, Any] = field(default_factory=dict)


_LATE = ("unknown", "delivered")
OPERATORS = {
    "city": Operator("138", 3010012301, ("delivered",), ("--set=response_delay=0.03",)),
    # Its links are cut again and again, with Submits that it took and did not answer.
    "province": Operator(
        "139", 3010012302, ("delivered",),
        ("--behaviour=duplicating", "--set=reports=before", "--set=drop_after=20"),
    ),
    "island": Operator(
        "132", 3010012303, ("failed",), ("--behaviour=failing", "--set=on_submit_link=true")
    ),
    # Takes everything and says nothing, until it is started again without this manner.
    "bay": Operator(
        "133", 3010012304, _LATE, ("--behaviour=silent",), {"resends": 2, "response_timeout": 1.0}
    ),
}  # fmt: skip
_OF_TEN = (*["city"] * 5, *["province"] * 2, *["island"] * 2, "bay")
# Text, and in how many parts it goes: 67 UCS-2 characters each, or 134 of ASCII.
_KINDS = (
    ("您的验证码是 {:06d}", 1),
    ("Order {:06d} is ready", 1),
    ("快递 📦 {:06d} 😀", 1),
    ("第{:06d}号：" + "长" * 150, 3),
    ("Order {:06d}: " + "thank you " * 30, 3),
    ("{:06d} " + "😀" * 70, 3),
)
_MO_KINDS = ("TD {:06d}", "查询余额 {:06d} 😀", "第{:06d}号：" + "请问明天上午还有没有位置？" * 12)


@dataclass(frozen=True)
class Call:
    """One text to one recipient or to many; each recipient is a message of its own."""

    key: str
    numbers: list[str]
    text: str
    priority: int


def operator_of(number: str) -> Operator:
    return next(o for o in OPERATORS.values() if number.removeprefix("86").startswith(o.prefix))


def calls(system: str) -> Iterator[Call]:
    """All that this system can send, in order."""
    at = list(SYSTEMS).index(system) * _APART
    while True:
        numbers = [_number(n) for n in range(at, at + (_MANY if at % 7 == 0 else 1))]
        yield Call(f"{system}-{at}", numbers, _KINDS[at % len(_KINDS)][0].format(at), at % 3)
        at += len(numbers)


def first_calls(system: str, messages: int) -> list[Call]:
    """The first of its calls, which have `messages` recipients together."""
    every = calls(system)
    ends = itertools.accumulate(len(call.numbers) for call in calls(system))
    return [next(every) for _ in itertools.takewhile(lambda end: end <= messages, ends)]


def parts_of(text: str) -> int:
    """By the kind that it was made as."""
    return 3 if len(text) > 70 else 1


def mos(first: int, count: int) -> list[tuple[str, str, str, str]]:
    """(whose it is, user, SP number, text) of texts that users send; each text once."""
    made = []
    for at in range(first, first + count):
        system = list(SYSTEMS)[at % len(SYSTEMS)]
        text = _MO_KINDS[at % len(_MO_KINDS)].format(at)
        made.append((system, f"86138{at:08d}", f"{SYSTEMS[system]}{at % 100:02d}", text))
    return made


def _number(at: int) -> str:
    return f"{OPERATORS[_OF_TEN[at % len(_OF_TEN)]].prefix}{at:08d}"
