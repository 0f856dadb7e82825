"""Messages that were archived lately, kept in Redis for a restore: a database that goes back to its
backup has lost them, and no other server has them.

A sorted set has a member for each batch of the pump. Members are compressed, so that a message
takes about a hundred bytes, and bounded by hours and by bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from django.conf import settings

from gateway.connections import sms_redis
from gateway.lifecycle import keys, scripts
from gateway.lifecycle.messages import Finished, Mo
from msgplatform.core import logging
from msgplatform.core.connections import ResponseError, refusal

log = logging.get(__name__)

MAX_BYTES = 256 << 20
_LEVEL = 1  # higher ones take several times as long, and save a tenth


class Batch(msgspec.Struct, frozen=True):
    messages: Sequence[Finished] = ()
    mos: Sequence[Mo] = ()


_decode = msgspec.msgpack.Decoder(Batch).decode


def written(batch: Batch) -> bytes:
    """A batch as a member of the set."""
    return zlib.compress(msgspec.msgpack.encode(batch), _LEVEL)


def read(member: bytes) -> Batch:
    """The batch of a member."""
    return _decode(zlib.decompress(member))


def keep(batch: Batch) -> None:
    """Keep archived messages, before their keys are deleted. A full Redis keeps nothing: that it is
    emptied matters more."""
    seconds = settings.SMS_KEEP_ARCHIVED_HOURS * 3600
    if not seconds or not (batch.messages or batch.mos):
        return
    member = written(batch)
    try:
        scripts.run("keep", [member, seconds, MAX_BYTES])
    except ResponseError as error:
        if refusal(error) != "OOM":
            raise
        log.warning("archived_not_kept", messages=len(batch.messages), why=str(error)[:200])


def batches() -> Iterator[Batch]:
    """The batches, the oldest first; one at a time, since all together may be large."""
    client: Any = sms_redis()
    for position in range(client.zcard(keys.ARCHIVED)):
        for member in client.zrange(keys.ARCHIVED, position, position):
            yield read(member)
