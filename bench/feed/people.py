"""Users who are friends of each other, made inside MariaDB.

User `u` of `users` has the friends `u ± k·(users DIV (friends + 1))`, k = 1 … friends / 2: they are
far apart in the index, as those of a real user are, and friendship goes both ways.
"""

from typing import Any

from bench.harness.mariadb import numbers
from bench.harness.processes import BenchFailed
from msgplatform.models import Biz

BIZ = "feed-bench"


def biz() -> int:
    return Biz.objects.get_or_create(name=BIZ)[0].pk


def uid(number: str) -> str:
    """The SQL expression for a user's id; `number` is an SQL expression, too."""
    return f"CONCAT('user-', LPAD({number}, 8, '0'))"


def fill(cursor: Any, users: int, friends: int) -> None:
    """Replace all users and relations, through a connection whose statements may take long. Each
    reader is active, and everything is written for them."""
    if friends % 2 or users <= friends:
        raise BenchFailed(f"{users} users cannot have {friends} friends each")
    system, step = biz(), users // (friends + 1)
    # An empty table is filled by sorting, without checking each row against the others.
    cursor.execute("SET SESSION unique_checks = 0, foreign_key_checks = 0")
    for table in ("feed_user", "friend"):
        cursor.execute(f"TRUNCATE TABLE {table}")
    cursor.execute(
        "INSERT INTO feed_user (biz_id, uid, friends, followers, merging, active, visit_date, "
        f"read_id, floor) SELECT {system}, {uid('u.seq')}, {friends}, 0, 0, 1, UTC_TIMESTAMP(6), "
        f"0, 0 FROM {numbers(0, users - 1)} u"
    )
    # Of the neighbours on both sides: those above by +k, those below by +(users - k), MOD users.
    half = friends // 2
    apart = f"IF(k.seq <= {half}, k.seq * {step}, {users} - (k.seq - {half}) * {step})"
    cursor.execute(
        "INSERT INTO friend (biz_id, uid, relation, fri_uid, delivery, create_date) "
        f"SELECT {system}, {uid('u.seq')}, 'friend', {uid(f'(u.seq + {apart}) MOD {users}')}, 2, "
        f"UTC_TIMESTAMP(6) FROM {numbers(0, users - 1)} u "
        f"STRAIGHT_JOIN {numbers(1, friends)} k"
    )
    made = cursor.rowcount
    cursor.execute("SET SESSION unique_checks = 1, foreign_key_checks = 1")
    if made != users * friends:
        raise BenchFailed(f"{made} relations were made instead of {users * friends}")
    for table in ("feed_user", "friend"):
        cursor.execute(f"ANALYZE TABLE {table}")
        cursor.fetchall()
