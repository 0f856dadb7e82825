"""Messages that are still in Redis, found by what they hold.

Redis has no index by number or text: one would cost every message a command. So the keys are walked
in short steps, between which the senders' commands run, for a given time; then the walk goes on
from its cursor. A message that is there throughout the walk is found; one that leaves meanwhile is
in the archive, which is to be searched afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.utils.translation import gettext as _

from gateway.connections import sms_redis
from gateway.lifecycle import keys, store
from gateway.lifecycle.messages import Finished, Mt, decode_mt
from gateway.models import SgipMt
from msgplatform.core import personal
from msgplatform.core.flows import Hit
from msgplatform.models import Biz

_STEP = 500  # keys that one SCAN looks at: less than a millisecond of Redis
_SHOWN_TEXT = 40


@dataclass
class Walk:
    """A part of a walk: `found` are ids, `seen` is how many messages were looked at, `cursor` is
    where it goes on, None at the end."""

    found: list[str] = field(default_factory=list)
    seen: int = 0
    cursor: int | None = 0


def walk(wanted: Callable[[Mt, str], bool], cursor: int, seconds: float, most: int) -> Walk:
    """Go on from a cursor, 0 at first, until the time is over or more than `most` are found.
    `wanted` gets a message and how it ended, '' while it has not. Raises RedisError."""
    part, redis = Walk(cursor=cursor), sms_redis()
    until = time.monotonic() + seconds
    while True:
        # An older cursor is None only at the end, where nobody asks again.
        following, names = redis.scan(part.cursor or 0, match=keys.EVERY_MT, count=_STEP)
        for mt, final in _messages(redis, names):
            part.seen += 1
            if wanted(mt, final):
                part.found.append(mt.id)
        part.cursor = int(following) or None
        if part.cursor is None or len(part.found) >= most or time.monotonic() >= until:
            return part


def _messages(redis: Any, names: Sequence[bytes | str]) -> Iterator[tuple[Mt, str]]:
    with redis.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.hmget(name, "msg", "final")
        rows = pipe.execute()
    yield from ((decode_mt(row), (final or b"").decode()) for row, final in rows if row)


def hits(ids: list[str], fits: Callable[[Finished], bool] = lambda _found: True) -> list[Hit]:
    """The lines of those that are still there, and fit."""
    rows = [found for found in store.read(ids) if fits(found)]
    names = systems({found.mt.biz for found in rows})
    return [
        Hit(
            id=found.mt.id,
            title=title(found.mt.user_number, found.mt.text),
            masked_title=personal.masked(found.mt.user_number),
            state=str(SgipMt.Final(found.final).label) if found.final else _(found.state),
            at=datetime.fromtimestamp(found.accepted_at, UTC),
            biz=names.get(found.mt.biz, str(found.mt.biz)),
        )
        for found in rows
    ]


def systems(bizs: set[int]) -> dict[int, str]:
    return {biz.pk: str(biz) for biz in Biz.objects.filter(pk__in=bizs)} if bizs else {}


def title(number: str, text: str) -> str:
    cut = text if len(text) <= _SHOWN_TEXT else f"{text[:_SHOWN_TEXT]}…"
    return f"{number} · {cut}"
