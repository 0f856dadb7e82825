"""The two sides of a connection, what each serves, and the limits both keep."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ..commands import Deliver, Report, Trace, UserRpt
from ..constants import IDLE_TIMEOUT, LOGIN_TIMEOUT, MAX_PACKET, RESPONSE_TIMEOUT, WINDOW, LoginType
from ..submit import Submit


class Side(Enum):
    SP = "SP"
    SMG = "SMG"


class Phase(Enum):
    BINDING = "binding"
    BOUND = "bound"
    UNBINDING = "unbinding"
    CLOSED = "closed"


# Read for each frame: a member is six times slower to reach through its class.
BINDING, BOUND, UNBINDING, CLOSED = Phase


SERVED: dict[Side, frozenset[type]] = {
    Side.SP: frozenset({Deliver, Report, UserRpt}),
    Side.SMG: frozenset({Submit, Trace}),
}
# The login types that a side accepts: an SP takes the SMG's, an SMG an SP's and those for a Trace.
LOGIN_TYPES: dict[Side, frozenset[int]] = {
    Side.SP: frozenset({LoginType.SMG_TO_SP}),
    Side.SMG: frozenset({LoginType.SP_TO_SMG, LoginType.TRACE}),
}


@dataclass(frozen=True, slots=True)
class Limits:
    """Times in seconds, `window` in commands, `packet` in bytes."""

    window: int = WINDOW
    response_timeout: float = RESPONSE_TIMEOUT
    resends: int = 2  # how often a command is sent again before it is given up
    idle_timeout: float = IDLE_TIMEOUT
    login_timeout: float = LOGIN_TIMEOUT  # of who connects to us, until its Bind
    packet: int = MAX_PACKET  # of sent frames; received frames may be longer
