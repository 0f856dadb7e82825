"""The names of the keys; `docs/sms-redis.md` says what each holds. Scripts make the same names."""

import hashlib

# The braces keep all keys on one node of a Redis cluster, because scripts need that.
PREFIX = "{sms}:"

# Submits without a response; messages that wait for a Report; refused messages.
SUBMITED = PREFIX + "set:submited"
RESPONSE_SUCC = PREFIX + "set:response-succ"
RESPONSE_FAIL = PREFIX + "set:response-fail"
REPORT_DUE = PREFIX + "zset:report-due"
# A list, and the set of the entries that a program has taken from it, until the lease is over.
LIST_REPORT = PREFIX + "list:report"
REPORTING = PREFIX + "zset:reporting"
LIST_FINISH = PREFIX + "list:finish"
FINISHING = PREFIX + "zset:finishing"
LIST_UNMATCHED = PREFIX + "list:report-unmatched"
UNMATCHED = PREFIX + "zset:report-unmatched"
LIST_MO = PREFIX + "list:mo-id"
MO_REPORTING = PREFIX + "zset:mo-reporting"
LIST_MO_FINISH = PREFIX + "list:mo-finish"
MO_FINISHING = PREFIX + "zset:mo-finishing"
MO_PARTS = PREFIX + "zset:mo-part"
# Batches of messages that were archived lately, and their bytes.
ARCHIVED = PREFIX + "zset:archived"
ARCHIVED_BYTES = PREFIX + "archived-bytes"
# Counters: of messages ever accepted and received, and of sequences.
MT_COUNT = PREFIX + "mt-GID"
MO_COUNT = PREFIX + "mo-GID"
# minute (unix time / 60) → number of messages accepted in it; minutes of the last day
MT_MINUTES = PREFIX + "mt-minutes"
# The keys that remain of accepted messages.
COUNTS = (MT_COUNT, MT_MINUTES, ARCHIVED, ARCHIVED_BYTES)
SEQNO = PREFIX + "seqno"
# process → its connections, see `presence`.
LINKS = PREFIX + "link"
# gateway → time since when no sender has had a connection, see `presence.outages`
GATEWAYS_AWAY = PREFIX + "gateway-away"


# Lists and sets that hold only ids and sequences, of up to millions of messages.
_ID_KEYS = frozenset({
    SUBMITED, RESPONSE_SUCC, RESPONSE_FAIL, REPORT_DUE, LIST_REPORT, REPORTING, LIST_FINISH,
    FINISHING, LIST_MO, MO_REPORTING, LIST_MO_FINISH, MO_FINISHING,
})  # fmt: skip
_ID_PREFIXES = tuple(
    PREFIX + name
    for name in ("list:pending-", "zset:schedule-", "zset:claimed-", "zset:submit-due-")
)


def has_only_ids(key: str) -> bool:
    """True if the key holds nothing but ids and sequences, so that no person stands in it."""
    return key in _ID_KEYS or key.startswith(_ID_PREFIXES)


# All messages, as a pattern for SCAN.
MT_PATTERN = PREFIX + "mt:*"


def mt(message: int) -> str:
    return f"{PREFIX}mt:{message}"


def mo(message: int | str) -> str:
    return f"{PREFIX}mo:{message}"


def listener(machine: str, port: int) -> str:
    """The key exists while receivers of this platform listen on the port, and minutes longer."""
    return f"{PREFIX}listener:{machine}:{port}"


def submit(seqno: int, ts: int) -> str:
    return f"{PREFIX}submit:{seqno}:{ts}"


def pending(gateway: int, priority: int = 0) -> str:
    """The list of one gateway; priority 0 is the original's, 1 to 9 go first."""
    return f"{PREFIX}list:pending-{gateway}" + (f"-{priority}" if priority else "")


def scheduled(gateway: int) -> str:
    return f"{PREFIX}zset:schedule-{gateway}"


def claimed(gateway: int) -> str:
    return f"{PREFIX}zset:claimed-{gateway}"


def submit_due(gateway: int) -> str:
    return f"{PREFIX}zset:submit-due-{gateway}"


def speed(gateway: int) -> str:
    return f"{PREFIX}speed:{gateway}"


def spent(account: int, day: str) -> str:
    return f"{PREFIX}spent:{account}:{day}"


def idempotency(biz: int, key: str) -> str:
    """A digest, because a caller's key may have any characters."""
    digest = hashlib.sha256(f"{biz}:{key}".encode()).hexdigest()
    return f"{PREFIX}idempotency:{digest}"


def accepted(first_id: str) -> str:
    """The key of the `accept` that stored this message, the first of a call without a key."""
    return f"{PREFIX}accepted:{first_id}"


def mo_seen(node: int, ts: int, seqno: int, digest: str = "") -> str:
    """`digest` is that of the content; keys of an earlier version have none."""
    return f"{PREFIX}mo-seen:{node}:{ts}:{seqno}" + (f":{digest}" if digest else "")


def mo_part(user: str, sp_number: str, reference: int, total: int) -> str:
    return f"{PREFIX}mo-part:{user}:{sp_number}:{reference}:{total}"
