"""Posts and their events, made inside MariaDB, and a check of the entries written for them.

Of the platform it uses only the tables, so that the check is the same for all sides.
"""

from typing import Any

from bench.feed import people
from bench.harness.mariadb import numbers
from bench.harness.processes import BenchFailed

# Ids of posts are one tick apart, and authors of neighbouring posts far apart.
STEP = 1 << 15
_SPREAD = 7919
TABLES = ("feed", "eventqueue", "feed_broadcast", "feed_idempotency")


def empty(cursor: Any) -> None:
    """Delete posts, events and entries; users and relations stay."""
    for table in TABLES:
        cursor.execute(f"TRUNCATE TABLE {table}")
    cursor.execute("DELETE FROM msgplatform_minutecounter WHERE flow = 'feed'")


def fill(cursor: Any, first_id: int, count: int, users: int, handled: int = 0) -> None:
    """Write `count` posts for friends into empty tables. Their events wait, but for the first
    `handled` ones. The first post has the id `first_id`, the others follow in steps of STEP."""
    biz = people.biz()
    author = people.uid(f"n.seq * {_SPREAD} MOD {users}")
    cursor.execute("SET SESSION unique_checks = 0, foreign_key_checks = 0")
    row_id = f"{first_id} + n.seq * {STEP}"
    of_numbers = f"{numbers(0, count - 1)} n"
    cursor.execute(
        "INSERT INTO feed (id, biz_id, uid, topic, app_id, src_type, data, create_date) "
        f"SELECT {row_id}, {biz}, {author}, 'friend', ELT(1 + n.seq MOD 3, 'web', 'ios', "
        "'android'), ELT(1 + n.seq MOD 2, 'update', 'note'), CONCAT('Post number ', n.seq, ': ', "
        f"LEFT(SHA2(n.seq, 256), 40)), UTC_TIMESTAMP(6) FROM {of_numbers}"
    )
    made = [cursor.rowcount]
    cursor.execute(
        "INSERT INTO eventqueue (qid, biz_id, topic, kind, status, data, uid, create_date, "
        f"handle_date, position, reason) SELECT {row_id}, {biz}, 'friend', 'post', "
        f"n.seq < {handled}, '', {author}, UTC_TIMESTAMP(6), "
        f"IF(n.seq < {handled}, UTC_TIMESTAMP(6), NULL), '', '' FROM {of_numbers}"
    )
    made.append(cursor.rowcount)
    cursor.execute("SET SESSION unique_checks = 1, foreign_key_checks = 1")
    if made != [count, count]:
        raise BenchFailed(f"{made} posts and events were made instead of {count} each")
    for table in ("feed", "eventqueue"):
        cursor.execute(f"ANALYZE TABLE {table}")
        cursor.fetchall()


def fill_entries(cursor: Any) -> None:
    """Write the entries of all handled posts into an empty table."""
    cursor.execute("SET SESSION unique_checks = 0, foreign_key_checks = 0")
    cursor.execute(
        "INSERT INTO feed_broadcast (biz_id, fri_uid, feed_id, create_date, app_id, src_type) "
        "SELECT r.biz_id, r.fri_uid, f.id, f.create_date, f.app_id, f.src_type FROM feed f "
        "STRAIGHT_JOIN friend r ON r.biz_id = f.biz_id AND r.uid = f.uid AND r.relation = 'friend' "
        "STRAIGHT_JOIN eventqueue e ON e.qid = f.id AND e.status = 1"
    )
    cursor.execute("SET SESSION unique_checks = 1, foreign_key_checks = 1")
    cursor.execute("ANALYZE TABLE feed_broadcast")
    cursor.fetchall()


def handled(cursor: Any, first_id: int = 0) -> int:
    """How many events are handled, from the id `first_id` on."""
    cursor.execute("SELECT COUNT(*) FROM eventqueue WHERE status = 1 AND qid >= %s", [first_id])
    return int(cursor.fetchone()[0])


def check_written(cursor: Any, friends: int, first_id: int = 0) -> int:
    """Check that each friend of the author of a handled post has its entry, with the post's values,
    and that there is no other entry; how many there are. Only events from `first_id` on count.
    Raises BenchFailed."""
    done = handled(cursor, first_id)
    cursor.execute("SELECT COUNT(*) FROM feed_broadcast")
    entries = cursor.fetchone()[0]
    if entries != done * friends:
        raise BenchFailed(f"{entries} entries of {done} handled posts with {friends} friends each")
    cursor.execute(
        "SELECT COUNT(*) FROM eventqueue e STRAIGHT_JOIN feed f ON f.id = e.qid "
        "STRAIGHT_JOIN friend r ON r.biz_id = f.biz_id AND r.uid = f.uid AND r.relation = 'friend' "
        "STRAIGHT_JOIN feed_broadcast b ON b.biz_id = r.biz_id AND b.fri_uid = r.fri_uid "
        "AND b.feed_id = f.id AND b.create_date = f.create_date AND b.app_id = f.app_id "
        "AND b.src_type = f.src_type WHERE e.status = 1 AND e.qid >= %s "
        "AND e.handle_date IS NOT NULL AND e.position = '' AND e.reason = ''",
        [first_id],
    )
    if (right := cursor.fetchone()[0]) != entries:
        raise BenchFailed(f"only {right} of {entries} entries are what they must be")
    return int(entries)
