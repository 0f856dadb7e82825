"""Two ends of an SGIP connection without a network."""

from collections.abc import Callable
from typing import Any

from gateway.sgip import (
    Bind,
    Command,
    Event,
    FrameStream,
    Phase,
    Session,
    Side,
    decode,
)
from tests.unit.gateway.sgip_support import NODE, TIME

SP_BIND = Bind((NODE, TIME, 0), 1, "sp", "secret")


def login(bind: Bind) -> int:
    return 0 if bind.login_password == "secret" else 1


def sp(bind: Bind = SP_BIND, **options: object) -> Session:
    return Session(Side.SP, 0, bind=bind, **options)  # type: ignore[arg-type]


def smg(check: Callable[[Bind], int] = login, **options: object) -> Session:
    return Session(Side.SMG, 0, login=check, **options)  # type: ignore[arg-type]


def exchange(one: Session, other: Session, now: float = 0) -> tuple[list[Event], list[Event]]:
    """Carries bytes to and fro until none are left."""
    events: tuple[list[Event], list[Event]] = ([], [])
    while (there := one.data_to_send()) or (back := other.data_to_send()):
        if there:
            events[1].extend(other.receive(there, now))
        else:
            events[0].extend(one.receive(back, now))
    return events


def sent(session: Session) -> list[Command]:
    return [decode(frame) for frame in FrameStream().feed(session.data_to_send())]


def bound(**options: Any) -> tuple[Session, Session]:
    one, other = sp(**options), smg()
    exchange(one, other)
    assert one.phase is other.phase is Phase.BOUND
    return one, other


def give(session: Session, *commands: Command, now: float = 0) -> list[Event]:
    return session.receive(b"".join(command.encode() for command in commands), now)
