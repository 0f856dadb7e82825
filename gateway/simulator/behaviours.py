"""How a simulated SMG behaves: well, or in the ways that gateways in the field do not."""

from enum import Enum

import msgspec

from gateway.sgip import Result, State
from gateway.sgip.constants import THROTTLED


class ReportTime(Enum):
    AFTER = "after the response"
    BEFORE = "before the response"
    NEVER = "never"


class Behaviour(msgspec.Struct, frozen=True):
    """Times are in seconds. Numbers of Submits are those of one connection."""

    login_result: int = 0
    result: int = 0  # delay of a Submit's response
    response_delay: float | None = 0  # None: no response at all
    per_second: int | None = None  # Submits beyond this number get THROTTLED
    limit_first: bool = False  # `per_second` also counts repeats, and is asked before the memory
    drop_after: int | None = None  # after so many accepted Submits the link is cut without answers
    garbage_after: int | None = None  # number of Submits
    reports: ReportTime = ReportTime.AFTER
    report_copies: int = 1  # each repetition under its own sequence
    resent_reports: bool = False  # each frame is written twice
    on_submit_link: bool = False  # Reports and MOs come over the SP's own connection
    state: int = State.DELIVERED
    error_code: int = 0


BEHAVIOURS: dict[str, Behaviour] = {
    "happy": Behaviour(),
    "silent": Behaviour(response_delay=None, reports=ReportTime.NEVER),
    "slow": Behaviour(response_delay=0.5),
    "refusing": Behaviour(result=int(Result.NO_ROUTE)),
    "failing": Behaviour(state=State.FAILED, error_code=int(Result.UNKNOWN_USER)),
    "unwelcoming": Behaviour(login_result=int(Result.LOGIN)),
    "throttling": Behaviour(per_second=50),
    "dropping": Behaviour(drop_after=20),
    "overloaded": Behaviour(per_second=20, drop_after=20, limit_first=True),
    "early-reports": Behaviour(response_delay=0.05, reports=ReportTime.BEFORE),
    "submit-link": Behaviour(on_submit_link=True),
    "duplicating": Behaviour(report_copies=2, resent_reports=True),
    "garbage": Behaviour(garbage_after=20),
}
THROTTLE_RESULT = THROTTLED
