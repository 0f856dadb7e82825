"""Messages that were archived lately, kept in Redis for a restore: a database that goes back to its
backup has lost them, and no other server has them.

A sorted set has a member for each batch of the pump. Members are compressed, so that a message
takes about a hundred bytes, and bounded by hours and by bytes.
"""

import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from django.conf import settings

from gateway.connections import sms_redis
from gateway.lifecycle import keys, scripts
from gateway.lifecycle.messages import Finished, Mo
from gateway.lifecycle.store import Lease
from msgplatform.core import logging
from msgplatform.core.connections import ResponseError, refusal

log = logging.get(__name__)

MAX_BYTES = 256 << 20
_LEVEL = 1  # higher levels take several times as long and save a tenth


class Batch(msgspec.Struct, frozen=True):
    messages: Sequence[Finished] = ()
    mos: Sequence[Mo] = ()


_decode = msgspec.msgpack.Decoder(Batch).decode


def pack(batch: Batch) -> bytes:
    """A batch as a member of the set."""
    return zlib.compress(msgspec.msgpack.encode(batch), _LEVEL)


def unpack(member: bytes) -> Batch:
    """The batch of a member."""
    return _decode(zlib.decompress(member))


def keep(batch: Batch, lease: Lease | None = None) -> bool:
    """Keep archived messages, before their keys are deleted. A full Redis keeps none: freeing its
    memory matters more.

    Returns False, and keeps nothing, if another pump has taken over one of the messages that the
    caller had by `lease`: an erasure may have changed that pump's copy since.
    """
    seconds = settings.SMS_KEEP_ARCHIVED_HOURS * 3600
    if not seconds or not (batch.messages or batch.mos):
        return True
    arguments: list[scripts.Argument] = [pack(batch), seconds, MAX_BYTES]
    if lease:
        arguments.append(lease.until)
        arguments += [message.id for message in batch.messages]
        arguments += [mo.id for mo in batch.mos]
    try:
        return bool(scripts.run("keep", arguments, [lease.key] if lease else ()))
    except ResponseError as error:
        if refusal(error) != "OOM":
            raise
        log.warning("archived_not_kept", messages=len(batch.messages), why=str(error)[:200])
        return True


def page(after: str, count: int) -> tuple[list[tuple[bytes, str]], str]:
    """Members kept after a time ('': all), each with its time, oldest first: `count` members, and
    the others with the last one's time. The second value is that time, '' at the end."""
    client: Any = sms_redis()
    begin = f"({after}" if after else "-inf"
    # The cursor is a time: ranks change as soon as a pump removes the oldest member.
    rows = client.zrangebyscore(keys.ARCHIVED, begin, "+inf", 0, count, withscores=True)
    page_members = [(member, repr(time)) for member, time in rows]
    if len(rows) < count:
        return page_members, ""
    last = page_members[-1][1]
    count_of_last = sum(time == last for _member, time in page_members)
    page_members += [(member, last) for member in members_at(last)[count_of_last:]]
    return page_members, last


def members_at(time: str) -> list[bytes]:
    """The members with this time."""
    client: Any = sms_redis()
    members_with_time: list[bytes] = client.zrangebyscore(keys.ARCHIVED, time, time)
    return members_with_time


def members(page_size: int) -> Iterator[bytes]:
    """The members that are kept now, the oldest first, read `page_size` at a time."""
    client: Any = sms_redis()
    newest = client.zrange(keys.ARCHIVED, -1, -1, withscores=True)
    after, is_more = "", bool(newest)
    while is_more:
        page_members, after = page(after, page_size)
        yield from (member for member, _time in page_members)
        is_more = bool(after) and float(after) < newest[0][1]


def batches() -> Iterator[Batch]:
    """The kept batches, oldest first, one at a time: all together may be large."""
    return map(unpack, members(1))
