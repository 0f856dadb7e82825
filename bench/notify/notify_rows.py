"""Rows of Notify that its benches start from and check afterwards."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from django.apps import apps
from django.db import connection
from django.db.models import Model
from django.utils import timezone

from bench.harness.processes import BenchFailed
from bench.harness.programs import messages
from msgplatform.core.connections import work_redis
from msgplatform.core.data import ids, sql
from msgplatform.core.secrets import encryption
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz, MinuteCounter
from notify.models import BizMsg, BizReceive, Receive
from notify.orders import Item

_SETTINGS: tuple[type[Model], ...] = (Receive, BizReceive)
_PAGE = 20_000


@dataclass(frozen=True)
class Cast:
    """One business system with an API key, and its subscriptions."""

    biz: Biz
    token: str
    subscriptions: Sequence[BizReceive]


@lru_cache(maxsize=4)
def cast(url: str, subscribers: int) -> Cast:
    """Made once for a bench; every subscription goes to `url`, with the platform's defaults."""
    biz = Biz.objects.create(name=f"orders-{subscribers}")
    _, token = keys.create(biz, "bench", ["events:write"])
    subscriptions = [
        BizReceive.objects.create(
            biz=biz, receive=Receive.objects.create(name=f"subscriber-{subscribers}-{n}", url=url)
        )
        for n in range(subscribers)
    ]
    return Cast(biz, token, subscriptions)


def empty() -> None:
    """Delete messages and queues; business systems, keys and subscriptions stay."""
    models: list[type[Model]] = [MinuteCounter, *apps.get_app_config("notify").get_models()]
    tables = [model._meta.db_table for model in models if model not in _SETTINGS]
    with connection.cursor() as cursor:
        for table in tables:
            verb = "TRUNCATE TABLE" if connection.vendor == "mysql" else "DELETE FROM"
            cursor.execute(f"{verb} {connection.ops.quote_name(table)}")
    work_redis().flushall()


def reserve(count: int) -> list[int]:
    """Ids for rows that a bench makes."""
    return ids.reserve(count).ids(range(count))


# -- messages ------------------------------------------------------------------------------------
MESSAGE_COLUMNS = ("id", "biz_id", "event_type", "channel", "payload", "state", "created_at")
KEY_COLUMNS = ("id", "bucket", "biz_id", "key", "payload_hash", "created_at")


def message_row(row_id: int, biz_id: int, key: str, now: datetime) -> tuple[object, ...]:
    """A row of biz_msg as intake writes it."""
    payload = messages.payload(key)
    return (row_id, biz_id, messages.EVENT_TYPE, "", payload, 0, now)


def fill_messages(biz_id: int, prefix: str, count: int) -> dict[int, str]:
    """Write accepted messages, ready to be split; their keys by id."""
    keyed = {row_id: messages.key(prefix, n) for n, row_id in enumerate(reserve(count))}
    now = timezone.now()
    rows = (message_row(row_id, biz_id, key, now) for row_id, key in keyed.items())
    sql.insert("biz_msg", MESSAGE_COLUMNS, rows)
    return keyed


def items(prefix: str, count: int) -> list[tuple[Item, str]]:
    """Items of work orders, each with its key; they have no rows in the database."""
    keys = [messages.key(prefix, number) for number in range(count)]
    return [
        (Item(row_id, row_id, 1, messages.delivered_body(key)), key)
        for row_id, key in zip(reserve(count), keys, strict=True)
    ]


# -- checks --------------------------------------------------------------------------------------
def check_stored(expected: Collection[str], first: int = 0) -> None:
    """Check that just these keys have a message from the id `first` on, each with its payload."""
    found = 0
    for key, payload in _stored(first - 1):
        found += 1
        if key not in expected or encryption.unseal(bytes(payload)) != messages.payload(key):
            raise BenchFailed(f"the message of {key} is not what was sent")
    same(found, len(expected), "messages with a key")
    same(BizMsg.objects.filter(id__gte=first).count(), len(expected), "messages")


def _stored(last: int) -> Iterator[tuple[str, bytes]]:
    while True:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT m.id, i.key, m.payload FROM biz_msg m JOIN idempotency i ON i.id = m.id "
                "WHERE m.id > %s ORDER BY m.id LIMIT %s",
                [last, _PAGE],
            )
            rows = cursor.fetchall()
        yield from ((key, payload) for _, key, payload in rows)
        if len(rows) < _PAGE:
            return
        last = rows[-1][0]


def check_seen(seen: bytes, keys: Iterable[str]) -> None:
    """Check that the sink has seen these messages, each once, and nothing else."""
    digests = sorted(messages.split_digests(seen))
    if digests != sorted(map(messages.expected_digest, keys)):
        raise BenchFailed(f"the sink's {len(digests)} messages are not those that were delivered")


def same(found: int, expected: int, what: str) -> None:
    """Raises BenchFailed unless the counts agree."""
    if found != expected:
        raise BenchFailed(f"{what}: {found} were found, {expected} were expected")
