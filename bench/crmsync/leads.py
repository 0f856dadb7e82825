"""Leads that benches start from, made inside MariaDB, and a check that a CRM's table equals them.

Of the platform it uses only the hive's table, so that the check is the same for all sides.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.harness.mariadb import numbers
from bench.harness.processes import BenchFailed

APPKEY = "spring-sale"
# The fields of a lead that a CRM gets, and what the CRM's columns are called.
FIELDS = {"appkey": "appkey", "uid": "uid", "name": "name", "phone": "phone", "extra": "extra"}
# The safe horizon is two seconds and a clock's tick behind the present time, in whole seconds.
_HORIZON_SECONDS = 4.0
# Leads of one statement have the same UpdateTime; in life few have.
_AT_ONCE = 1_000
_STEP = 1 << 15  # as far apart as the ids that the platform makes
_FIRST_ID = 1 << 52
_PLACES = "'上海', '北京', '广州', '深圳', '杭州', '成都', '武汉', '西安'"
_NAMES = "'王小明', '李雷', '韩梅梅', '陈静', '刘洋', '赵敏', '孙悦', '周杰'"


def empty(cursor: Any) -> None:
    cursor.execute("TRUNCATE TABLE `lead`")


def fill(cursor: Any, count: int, before: int = 0) -> None:
    """Add `count` leads to the `before` that exist; about 300 bytes each."""
    for first in range(before + 1, before + count + 1, _AT_ONCE):
        last = min(before + count, first + _AT_ONCE - 1)
        _insert(cursor, first, last, "UTC_TIMESTAMP(6)")


def lead_id(number: int) -> int:
    """The id of the lead with this number, from 1 on."""
    return _FIRST_ID + number * _STEP


def lead_number(pk: int) -> int:
    """The number of the lead with this id."""
    return (pk - _FIRST_ID) // _STEP


def fill_past(cursor: Any, count: int) -> None:
    """Fill the empty table with `count` leads, as if one had come each second until a day ago.

    The triggers must have been dropped: they would set the time, and MariaDB fills an empty table
    by sorting only when it has none.
    """
    empty(cursor)
    cursor.execute("SET SESSION unique_checks = 0, foreign_key_checks = 0")
    _insert(cursor, 1, count, f"UTC_TIMESTAMP(6) - INTERVAL 86400 + {count} - n.seq SECOND")
    cursor.execute("SET SESSION unique_checks = 1, foreign_key_checks = 1")
    cursor.execute("ANALYZE TABLE `lead`")
    cursor.fetchall()


def _insert(cursor: Any, first: int, last: int, changed: str) -> None:
    cursor.execute(
        "INSERT INTO `lead` (id, biz_id, appkey, uid, name, phone, extra, UpdateTime, IsDelete, "
        f"version) SELECT {_FIRST_ID} + n.seq * {_STEP}, 1 + n.seq MOD 20, '{APPKEY}', "
        f"CONCAT('u', LEFT(SHA2(n.seq, 256), 32)), CONCAT(ELT(1 + n.seq MOD 8, {_NAMES}), n.seq), "
        "CONCAT('139', LPAD(n.seq, 8, '0')), "
        'CONCAT(\'{"email":"\', LEFT(SHA2(n.seq + 7, 256), 32), '
        f'\'@example.com","city":"\', ELT(1 + n.seq MOD 8, {_PLACES}), '
        "'\",\"budget\":', n.seq MOD 100000, ',\"wishes\":\"', LEFT(SHA2(n.seq, 256), 40), ' ', "
        f"LEFT(SHA2(n.seq + 1, 256), 40), '\"}}'), {changed}, 0, 1 FROM {numbers(first, last)} n"
    )
    if cursor.rowcount != last - first + 1:
        raise BenchFailed(f"{cursor.rowcount} leads were made instead of {last - first + 1}")


def change(cursor: Any, count: int, parts: int, turn: int) -> int:
    """Give every `parts`-th of `count` leads another phone and budget, and delete one in fifty of
    these softly instead; how many were changed. Another turn changes other leads.
    """
    number, changed = f"((id - {_FIRST_ID}) DIV {_STEP})", 0
    deletes = f"({number} DIV {parts}) MOD 50 = {turn % 50}"
    for first in range(1, count + 1, _AT_ONCE):
        last = min(count, first + _AT_ONCE - 1)
        cursor.execute(
            f"UPDATE `lead` SET IsDelete = {deletes}, phone = IF({deletes}, phone, "
            f"CONCAT('138', LPAD({turn % 100}, 2, '0'), SUBSTRING(phone, 6))), "
            f"extra = IF({deletes}, extra, JSON_SET(extra, '$.budget', {turn})) "
            f"WHERE id BETWEEN {_FIRST_ID + first * _STEP} AND {_FIRST_ID + last * _STEP} "
            f"AND {number} MOD {parts} = {turn % parts}"
        )
        changed += cursor.rowcount
    return changed


@contextmanager
def old_when_committed(connection: Any) -> Iterator[Any]:
    """A cursor whose writes are committed together, when the horizon has passed them.

    So all of them can be read at once, and the clock of a stretch starts with the commit.
    """
    with connection.cursor() as cursor:
        cursor.execute("START TRANSACTION")
        try:
            yield cursor
            time.sleep(_HORIZON_SECONDS)
            cursor.execute("COMMIT")
        except BaseException:
            cursor.execute("ROLLBACK")
            raise


def check_equal(cursor: Any, hive: str, table: str, deleted: str = "is_delete") -> int:
    """Check that the CRM's table has every lead as the hive has it, with its version, and no other
    row; how many leads there are. Raises BenchFailed with an example.

    `hive` and `table` are names with their database; `deleted` is the CRM's column of soft deletes.
    """
    cursor.execute(f"SELECT COUNT(*) FROM {hive}")
    wanted = cursor.fetchone()[0]
    cursor.execute(f"SELECT COUNT(*), COUNT(DISTINCT id) FROM {table}")
    if (found := cursor.fetchone()) != (wanted, wanted):
        raise BenchFailed(f"{found[0]} rows ({found[1]} leads) in {table}, {wanted} in {hive}")
    pairs = {f"h.`{ours}`": f"c.`{theirs}`" for ours, theirs in FIELDS.items() if ours != "extra"}
    pairs |= {"h.IsDelete": f"c.`{deleted}`", "h.version": "c.version"}
    same = " AND ".join(f"BINARY {ours} <=> BINARY {theirs}" for ours, theirs in pairs.items())
    extra = f"c.`{FIELDS['extra']}`"  # equal, if each contains the other
    same += f" AND JSON_CONTAINS(h.extra, {extra}) AND JSON_CONTAINS({extra}, h.extra)"
    cursor.execute(
        f"SELECT h.id FROM {hive} h LEFT JOIN {table} c ON c.id = h.id "
        f"WHERE c.id IS NULL OR NOT COALESCE({same}, 0) LIMIT 1"
    )
    if differing := cursor.fetchone():
        raise BenchFailed(f"lead {differing[0]} differs in {table}")
    return int(wanted)
