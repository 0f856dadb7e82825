"""The keys in Redis, and the connection to it."""

import os

import redis

PREFIX = "{sms}:"
LIST_REPORT = PREFIX + "list:report"
LIST_FINISH = PREFIX + "list:finish"
# What a program has in hand. Entries of one that was killed stay here.
SENDING, FORWARDING, PUMPING = (PREFIX + f"list:{name}" for name in ("sending", "fwd", "pumping"))
SEQNO = PREFIX + "seqno"
COUNT = PREFIX + "mt-GID"
IDEMPOTENCY_SECONDS = 86_400


def connect() -> redis.Redis:
    return redis.Redis.from_url(os.environ["SMS_REDIS_URL"], decode_responses=True)


def mt(message: int | str) -> str:
    return f"{PREFIX}mt:{message}"


def pending(gateway: int | str) -> str:
    return f"{PREFIX}list:pending-{gateway}"


def submit(seqno: int, ts: int) -> str:
    return f"{PREFIX}submit:{seqno}:{ts}"


def take(client: redis.Redis, source: str, in_hand: str) -> str:
    """The next entry, moved into the list of what is in hand; waits for one."""
    while True:
        entry = client.blmove(source, in_hand, 2, "LEFT", "RIGHT")
        if entry is not None:
            return entry
