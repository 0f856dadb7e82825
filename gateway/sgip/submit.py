"""Submit: the command that carries a message to users (§4.2.3).

Fields are named as in the specification and stand in its order, with `sequence` in front. The
counts (UserCount, MessageLength) are derived.

In a stream of Submits only user, content and sequence differ from frame to frame. The blocks
between these are remembered in written and in read form: without that, writing a Submit takes four
times as long.
"""

from collections.abc import Callable
from functools import lru_cache
from operator import attrgetter
from struct import Struct
from typing import ClassVar

from .constants import (
    MAX_FRAME,
    MAX_PACKET,
    MAX_USERS,
    NO_RESERVE,
    SAFE_USERS,
    SUBMIT_LENGTH,
    Coding,
    CommandId,
    FeeType,
    MoreLateToMt,
    ReportFlag,
)
from .errors import FieldError
from .fields import (
    NUMBER,
    Command,
    SequenceNumber,
    body_error,
    fault_of,
    read_number,
    read_text,
    record,
    write_number,
    write_reserve,
    write_text,
)
from .frames import parser

_LENGTH = Struct(">I")
_HEAD = Struct(">5I21s21sB").pack
_OPTIONS = Struct(">5s10sB6s6sBBB16s16sBBBBB")  # CorpId to MessageType
_options_of = attrgetter(
    "corp_id", "service_type", "fee_type", "fee_value", "given_value", "agent_flag",
    "morelateto_mt_flag", "priority", "expire_time", "schedule_time", "report_flag", "tp_pid",
    "tp_udhi", "message_coding", "message_type",
)  # fmt: skip


@record
class Submit(Command):
    """A message from the SP to 1 to 100 users (84 fit with 140 bytes of content)."""

    command: ClassVar[str] = "Submit"
    command_id: ClassVar[int] = CommandId.SUBMIT
    sp_number: str
    charge_number: str
    user_numbers: tuple[str, ...]
    corp_id: str
    service_type: str
    fee_type: int = FeeType.FREE
    fee_value: str = "0"
    given_value: str = "0"
    agent_flag: int = 0
    morelateto_mt_flag: int = MoreLateToMt.NOT_AFTER_MO
    priority: int = 0
    expire_time: str = ""
    schedule_time: str = ""
    report_flag: int = ReportFlag.ALWAYS
    tp_pid: int = 0
    tp_udhi: int = 0
    message_coding: int = Coding.ASCII
    message_type: int = 0
    message_content: bytes = b""
    reserve: bytes = NO_RESERVE

    @property
    def user_count(self) -> int:
        return len(self.user_numbers)

    @property
    def message_length(self) -> int:
        return len(self.message_content)

    def _frame(self) -> bytes:
        users = [write_text(user, NUMBER) for user in self.user_numbers]
        content = self.message_content
        total = SUBMIT_LENGTH + NUMBER * len(users) + len(content)
        if not 0 < len(users) <= MAX_USERS or total > MAX_FRAME:
            raise fault_of(self)
        numbers = write_number(self.sp_number), write_number(self.charge_number)
        return b"".join(
            (
                _HEAD(total, 3, *self.sequence, *numbers, len(users)),
                *users,
                _write_options(*_options_of(self)),
                _LENGTH.pack(len(content)),
                content,
                write_reserve(self.reserve),
            )
        )


def users_per_submit(content_length: int, at_most: int = SAFE_USERS) -> int:
    """Maximum of users of a Submit with this content (bytes) within a packet of 2 KB."""
    return max(1, min(at_most, (MAX_PACKET - SUBMIT_LENGTH - content_length) // NUMBER))


# 1024 sets of options: those of accounts that send at the same time, with their expire times.
@lru_cache(1024)
def _write_options(*o: str | int) -> bytes:
    texts = {0: 5, 1: 10, 3: 6, 4: 6, 8: 16, 9: 16}
    return b"".join(
        write_text(value, texts[at]) if at in texts else bytes((value,))  # type: ignore[arg-type]
        for at, value in enumerate(o)
    )


@lru_cache(1024)
def _read_options(block: bytes) -> tuple[str | int, ...]:
    values = _OPTIONS.unpack(block)
    return tuple(read_text(value) if isinstance(value, bytes) else value for value in values)


# By the number of users: the frame up to its content.
@lru_cache(MAX_USERS + 1)
def _layout(count: int) -> Struct:
    return Struct(f">20x21s21sx{'21s' * count}{_OPTIONS.size}sI")


# A module's name is quicker to reach than a class's.
_make: Callable[..., Submit] = Submit.make


@parser(CommandId.SUBMIT)
def read_submit(frame: bytes, sequence: SequenceNumber) -> Submit:
    size = len(frame)
    if size < SUBMIT_LENGTH:
        raise body_error("Submit", frame, SUBMIT_LENGTH)
    count = frame[62]
    if size < SUBMIT_LENGTH + NUMBER * count:
        raise body_error("Submit", frame, SUBMIT_LENGTH + NUMBER * count)
    sp_number, charge_number, *users, options, length = _layout(count).unpack_from(frame)
    if size != SUBMIT_LENGTH + NUMBER * count + length:
        raise body_error("Submit", frame, SUBMIT_LENGTH + NUMBER * count + length)
    # After the lengths: a wrongly cut frame is a fault of the stream, not of a field.
    if not 1 <= count <= MAX_USERS:
        raise FieldError(f"1 to {MAX_USERS} is needed, got {count}", "user_count")
    return _make(
        sequence,
        read_number(sp_number),
        read_number(charge_number),
        tuple(map(read_text, users)),
        *_read_options(options),
        frame[-8 - length : -8],
        frame[-8:],
    )
