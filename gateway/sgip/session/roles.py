"""The two sides of a connection, what each serves, and the limits both keep."""

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


# Read for each frame: reaching a member through its class is six times slower.
BINDING, BOUND, UNBINDING, CLOSED = Phase


SERVED: dict[Side, frozenset[type]] = {
    Side.SP: frozenset({Deliver, Report, UserRpt}),
    Side.SMG: frozenset({Submit, Trace}),
}
# The login types that each side accepts: an SP the SMG's, an SMG an SP's and those for a Trace.
LOGIN_TYPES: dict[Side, frozenset[int]] = {
    Side.SP: frozenset({LoginType.SMG_TO_SP}),
    Side.SMG: frozenset({LoginType.SP_TO_SMG, LoginType.TRACE}),
}


@dataclass(frozen=True, slots=True)
class Limits:
    """Times in seconds, `window` in commands, `packet` in bytes."""

    window: int = WINDOW
    response_timeout: float = RESPONSE_TIMEOUT
    resends: int = 2  # maximum of repeats of a command
    idle_timeout: float = IDLE_TIMEOUT
    login_timeout: float = LOGIN_TIMEOUT  # until the Bind of a peer that connects
    packet: int = MAX_PACKET  # maximum of sent frames; received frames may be longer
