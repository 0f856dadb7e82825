"""Notify as a whole beside tables of ten million rows, and beside a tenth of them."""

import sys
from datetime import timedelta
from functools import lru_cache
from typing import Any

from django.utils import timezone

from bench.harness import plans, volume
from bench.harness.ground import Ground
from bench.harness.measure import Side
from bench.harness.programs import messages
from bench.notify import statements
from bench.notify.notify_flow import Notify
from msgplatform.core.connections import work_redis
from msgplatform.core.data import ids
from msgplatform.models import MinuteCounter

NAME = "notify-at-scale"
ORDER = 70
ABOUT = (
    "What `notify` measures, with 10,000,000 messages, deliveries and idempotency keys and as many "
    "attempts in the hot tables, and as many of each in the archive; half of them belong to the "
    "business system that publishes. The reference is the same with a tenth of the rows, in "
    "another database of the same server, in turns. MariaDB's buffer pool has 128 MiB, less than "
    "a fifth of the smaller database. Keys rise within each connection, as order numbers do; "
    "random ones are shown beside. What each statement reads at both sizes is in its query plans."
)
REASONS = {
    "at-1m-rows": (
        "The larger database has a tenth of the smaller one's share in the buffer pool."
    ),
}
_POOL_FILLING, _POOL_MEASURING = 2 << 30, 128 << 20  # large to fill quickly, then small


class AtScale(Notify):
    """The larger database."""

    database = "large"

    def prepare(self) -> None:
        heavy = _volumes(self.ground)[self.database]
        self.ground.use(self.database)
        MinuteCounter.objects.all().delete()
        work_redis().flushall()
        # Ids begin with their time, and the stretch before ended more than a second ago.
        self.first = ids.first_id_at(timezone.now() - timedelta(seconds=1))
        self.begin(heavy.token)


class AtOneMillion(AtScale):
    """The same with 1,000,000 rows in each table."""

    name = "at-1m-rows"
    database = "small"


class RandomKeys(AtScale):
    """Beside 10,000,000 rows, with idempotency keys in no order (UUIDs): each is stored in another
    page of the unique index, which the buffer pool does not hold.
    """

    name = "random-keys"
    load_options = ("--scattered",)
    key = staticmethod(messages.scattered_key)


class RandomKeysAtOneMillion(RandomKeys):
    """Random keys beside 1,000,000 rows: the buffer pool holds half of that index."""

    name = "random-keys-at-1m-rows"
    database = "small"


def sides() -> list[type[Side]]:
    return [AtScale, AtOneMillion, RandomKeys, RandomKeysAtOneMillion]


def facts(ground: Ground) -> dict[str, Any]:
    """After all runs: the sizes, and the query plans into their file."""
    small, large = ground.rows
    recorded = {}
    for database, heavy in _volumes(ground).items():
        ground.use(database)
        recorded[database] = statements.record(heavy)
    introduction = statements.INTRODUCTION
    plans.write(ground.plans, introduction, recorded["small"], recorded["large"], small, large)
    return {"rows": {"at-1m-rows": small, "ours": large}, "buffer_pool_mb": _POOL_MEASURING >> 20}


@lru_cache(maxsize=1)
def _volumes(ground: Ground) -> dict[str, volume.Heavy]:
    """Fill both databases once for all runs, then make the buffer pool small."""
    ground.set_pool(_POOL_FILLING)
    made = {}
    for name, rows in zip(("small", "large"), ground.rows, strict=True):
        ground.make(name)
        made[name] = volume.cast(ground.sink_url)
        volume.fill(rows, _say)
    ground.set_pool(_POOL_MEASURING)
    return made


def _say(line: str) -> None:
    print(f"{NAME} filling  {line}", file=sys.stderr, flush=True)
