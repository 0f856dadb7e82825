"""The numbers of SGIP 1.2 (§4.2, §5.1 to §5.4), with the names that an SP needs."""

from enum import IntEnum

HEADER_LENGTH = 20
RESPONSE_BIT = 0x80000000
MAX_PACKET = 2048  # §4: a packet has at most 2 KB
MAX_FRAME = 4096  # accepted bytes: some senders of 100 users exceed the specification
MAX_USERS = 100
SAFE_USERS = 84  # users with 140 bytes of content, the maximum in 2 KB
SUBMIT_LENGTH = 143  # bytes, plus 21 a user, plus the content
NO_RESERVE = bytes(8)
PORT = 8801
WINDOW = 32  # commands without a response on a connection
RESPONSE_TIMEOUT = 30.0  # seconds until a command is sent again
IDLE_TIMEOUT = 60.0  # seconds until a server closes an idle connection
LOGIN_TIMEOUT = 5.0  # seconds; not in the specification


def gettext_noop(text: str) -> str:
    """Marks a text for translation; whoever shows it translates it."""
    return text


class CommandId(IntEnum):
    BIND = 0x1
    UNBIND = 0x2
    SUBMIT = 0x3
    DELIVER = 0x4
    REPORT = 0x5
    ADD_SP = 0x6
    CHECK_USER = 0x10
    USER_RPT = 0x11
    TRACE = 0x1000
    BIND_RESP = 0x80000001
    UNBIND_RESP = 0x80000002
    SUBMIT_RESP = 0x80000003
    DELIVER_RESP = 0x80000004
    REPORT_RESP = 0x80000005
    USER_RPT_RESP = 0x80000011
    TRACE_RESP = 0x80001000


# Commands between gateways, billing and name servers: an SP should never get one.
GATEWAY_COMMANDS = frozenset(range(CommandId.ADD_SP, CommandId.CHECK_USER + 1))


class LoginType(IntEnum):
    SP_TO_SMG = 1
    SMG_TO_SP = 2
    TRACE = 11


class FeeType(IntEnum):
    NO_INFORMATION_FEE = 0
    FREE = 1
    PER_MESSAGE = 2
    MONTHLY = 3
    BY_SP = 4


class MoreLateToMt(IntEnum):
    """MorelatetoMTFlag: what made the SP send this message."""

    FIRST_AFTER_MO = 0
    LATER_AFTER_MO = 1
    NOT_AFTER_MO = 2
    SYSTEM = 3


class ReportFlag(IntEnum):
    ON_FAILURE = 0
    ALWAYS = 1
    NEVER = 2
    MONTHLY_FEE = 3


class Coding(IntEnum):
    """MessageCoding; others follow GSM 03.38 section 4."""

    ASCII = 0
    SIM = 3
    BINARY = 4
    UCS2 = 8
    GBK = 15


class State(IntEnum):
    """State of a Report; WAITING is not final."""

    DELIVERED = 0
    WAITING = 1
    FAILED = 2


class ReportType(IntEnum):
    SUBMIT = 0
    DELIVER = 1


class UserCondition(IntEnum):
    DEREGISTERED = 0
    SUSPENDED = 1
    NORMAL = 2


class Result(IntEnum):
    """Result of a response (0 to 20) and ErrorCode of a Report (21 to 33), §5.2, by the names that
    programs use; RESULT_TEXT has all of them.

    On the wire it is any number from 0 to 255: gateways have codes of their own.
    """

    OK = 0
    LOGIN = 1
    REPEATED_LOGIN = 2
    TOO_MANY_CONNECTIONS = 3
    LOGIN_TYPE = 4
    PARAMETER = 5
    PHONE_NUMBER = 6
    COMMAND = 7
    LENGTH = 8
    SEQUENCE = 9
    BUSY = 11
    UNREACHABLE = 21
    NO_ROUTE = 23
    UNKNOWN_USER = 29
    SYSTEM_FAILURE = 32
    SMSC_FULL = 33


THROTTLED = 88  # outside the specification, widely used
FLOW_LIMIT = 33  # as the Result of a response; as an ErrorCode it is SMSC_FULL
LOGIN_TOO_FREQUENT = 34

# After a response with one of these the command may be sent again, under a new sequence. Operators
# use 32 as "system failure, or queue full".
RETRY_RESULTS = frozenset({int(Result.BUSY), int(Result.SYSTEM_FAILURE), FLOW_LIMIT, THROTTLED})

RESULT_TEXT: dict[int, str] = {
    0: gettext_noop("No error"),
    1: gettext_noop("Illegal login: wrong name or password"),
    2: gettext_noop("Repeated login on one connection"),
    3: gettext_noop("Too many connections"),
    4: gettext_noop("Wrong login type"),
    5: gettext_noop("Wrong parameter format"),
    6: gettext_noop("Illegal phone number"),
    7: gettext_noop("Wrong command"),
    8: gettext_noop("Wrong message length"),
    9: gettext_noop("Illegal sequence number"),
    10: gettext_noop("Illegal GNS operation"),
    11: gettext_noop("Node busy"),
    21: gettext_noop("Destination unreachable"),
    22: gettext_noop("Routing error"),
    23: gettext_noop("No route"),
    24: gettext_noop("Invalid charge number"),
    25: gettext_noop("User cannot be reached (switched off, out of range)"),
    26: gettext_noop("Handset memory full"),
    27: gettext_noop("Handset has no short messages"),
    28: gettext_noop("Handset could not receive"),
    29: gettext_noop("Unknown user"),
    30: gettext_noop("Function not provided"),
    31: gettext_noop("Illegal device"),
    32: gettext_noop("System failure"),
    33: gettext_noop("Queue full, or over the flow limit"),
    34: gettext_noop("Login too frequent"),
    88: gettext_noop("Throttled"),
    90: gettext_noop("Wrong packet length"),
    93: gettext_noop("Authentication of a postpaid user failed"),
    94: gettext_noop("Charging a prepaid user failed"),
}


def result_text(code: int) -> str:
    """The meaning of a Result or ErrorCode (0 to 255) in English, or the number if it has none."""
    return RESULT_TEXT.get(code, f"{code}")
