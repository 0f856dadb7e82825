"""The parts of long MOs in Redis, where every receiver finds them, until their message is whole."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.connections import sms_redis
from gateway.lifecycle import keys, scripts
from gateway.lifecycle.messages import Mo
from gateway.lifecycle.mo_store import SEEN_SECONDS, SequenceWords
from msgplatform.core.connections import clock

# How long the parts wait for each other.
PARTS_SECONDS = 7_200
_DIGEST = 40  # hexadecimal digits of SHA-1


@dataclass(frozen=True)
class Kept:
    """`what` became of a part: waiting, whole, or cut (the parts are those of an older message)."""

    what: str
    parts: dict[int, Mo]


def keep(parts_key: str, number: int, total: int, part: Mo, sequence: SequenceWords) -> Kept:
    """Keep one part, once whatever its repeats. `part.content` is the payload."""
    what, *flat = scripts.run(
        "mo_keep",
        [number, total, _digest(part), msgspec.json.encode(part), PARTS_SECONDS, SEEN_SECONDS],
        [parts_key, keys.mo_seen(*sequence)],
    )
    return Kept(what.decode(), _parts(dict(zip(flat[::2], flat[1::2], strict=True))))


def join(parts_key: str, mo: Mo, parts: Mapping[int, Mo]) -> bool:
    """Take in the message that was made of these parts; False when that was done already, or when
    others are there by now."""
    arguments: list[scripts.Argument] = [mo.id, msgspec.json.encode(mo)]
    for number, part in parts.items():
        arguments += [number, _digest(part)]
    return bool(scripts.run("mo_join", arguments, [parts_key]))


def late(count: int) -> dict[str, dict[int, Mo]]:
    """Parts that waited long enough for the others, by their key."""
    client: Any = sms_redis()
    names = client.zrangebyscore(keys.MO_PARTS, "-inf", clock(client), 0, count)
    return {name.decode(): _parts(client.hgetall(name)) for name in names}


def _digest(part: Mo) -> str:
    return hashlib.sha1(part.content, usedforsecurity=False).hexdigest()


def _parts(rows: dict[bytes, bytes]) -> dict[int, Mo]:
    return {
        int(number): msgspec.json.decode(row[_DIGEST:], type=Mo) for number, row in rows.items()
    }
