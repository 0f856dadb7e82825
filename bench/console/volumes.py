"""Databases with rows of every flow, each filled once for all runs."""

import sys
import time
from datetime import timedelta
from functools import lru_cache
from typing import Any

from django.utils import timezone

from bench.console import crm, platform, sms
from bench.feed import people, posts
from bench.harness import volume
from bench.harness.ground import Ground
from msgplatform.core.data import ids
from msgplatform.models import Biz

_BENCH = "pages"
SMALL, LARGE = "small", "large"
_SMALL_ROWS = 1_000
_SHARE = 0.3  # of the messages of Notify: as many texts, leads and records
_FRIENDS = 20
_LATE_EVENTS = 0.01  # of all: a half of these wait, the others were set aside


def rows(ground: Ground) -> dict[str, int]:
    """Messages of Notify in the hot tables of each database; the archive has as many again."""
    return {SMALL: min(_SMALL_ROWS, ground.rows[0]), LARGE: ground.rows[0]}


@lru_cache(maxsize=2)
def fill(ground: Ground, database: str) -> None:
    """Make and fill a database, the first time that it is asked for. It is in use afterwards."""
    count, now = rows(ground)[database], timezone.now()
    server = ground.make(database)
    volume.cast(ground.sink_url)
    volume.fill(count, _say)
    systems = list(Biz.objects.filter(name__startswith="system-").order_by("id"))
    connection = server.connect(database)
    connection.set_character_set("utf8mb4")
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION unique_checks = 0, foreign_key_checks = 0")
        begun = time.monotonic()
        sms.fill(cursor, int(count * _SHARE), systems, now)
        crm.fill(cursor, int(count * _SHARE), systems, now)
        _feed(cursor, count)
        _say(f"the other flows of {database}, {time.monotonic() - begun:.0f} s")
        begun = time.monotonic()
        platform.fill(cursor, count, now)
        for table in (*sms.TABLES, *crm.TABLES, *posts.TABLES, *platform.TABLES):
            cursor.execute(f"ANALYZE TABLE `{table}`")
            cursor.fetchall()
        _say(f"the counters of {database}, {time.monotonic() - begun:.0f} s")
    connection.close()


def _feed(cursor: Any, count: int) -> None:
    """A post for twenty messages of Notify, all of the last hour, and an entry for each friend."""
    users, many = max(2 * _FRIENDS, count // 100), max(100, count // 20)
    people.fill(cursor, users, _FRIENDS)
    first = ids.first_id_at(timezone.now() - timedelta(hours=1))
    posts.fill(cursor, first, many, users, handled=int(many * (1 - _LATE_EVENTS)))
    posts.fill_entries(cursor)
    cursor.execute(
        "UPDATE eventqueue SET status = 3, reason = 'ValueError: no such user' WHERE status = 0 "
        f"AND qid MOD {2 * posts.STEP} = {first % (2 * posts.STEP)}"
    )


def _say(line: str) -> None:
    print(f"{_BENCH} filling  {line}", file=sys.stderr, flush=True)
