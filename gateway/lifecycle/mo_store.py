"""MOs and UserRpts in Redis: taken in once, joined when they are long, kept until archived."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gateway.lifecycle import keys, scripts
from gateway.lifecycle.messages import Mo
from msgplatform.core.connections import sms_redis

# How long a gateway may repeat a Deliver and still be recognised.
SEEN_SECONDS = 86_400
# How long the parts of a long MO wait for each other.
PARTS_SECONDS = 7_200


def accept(mo: Mo, sequence: tuple[int, int, int], parts_key: str = "") -> bool:
    """Take it in with the sequence of the Deliver that completed it; False for a repeat."""
    taken = scripts.run(
        "mo",
        [mo.id, msgspec.json.encode(mo), SEEN_SECONDS],
        [keys.mo_seen(*sequence), parts_key],
    )
    return bool(taken)


def collect(parts_key: str, number: int, total: int, part: Mo) -> dict[int, Mo]:
    """Keep one part; all of them by number when none is missing, else nothing."""
    flat = scripts.run(
        "mo_part", [number, total, msgspec.json.encode(part), PARTS_SECONDS], [parts_key]
    )
    return {int(flat[i]): msgspec.json.decode(flat[i + 1], type=Mo) for i in range(0, len(flat), 2)}


def read(ids: Sequence[str]) -> list[Mo]:
    """Those that are there."""
    with sms_redis().pipeline(transaction=False) as pipe:
        for message in ids:
            pipe.hget(f"{keys.PREFIX}mo:{message}", "msg")
        rows = pipe.execute()
    return [msgspec.json.decode(row, type=Mo) for row in rows if row]


def rewrite(mos: Sequence[Mo]) -> None:
    """Write down what was found out about them, such as their owner."""
    if not mos:
        return
    with sms_redis().pipeline(transaction=False) as pipe:
        for mo in mos:
            pipe.hset(f"{keys.PREFIX}mo:{mo.id}", "msg", msgspec.json.encode(mo).decode())
        pipe.execute()


def forget(ids: Sequence[str]) -> None:
    """Archived: their keys go."""
    if not ids:
        return
    with sms_redis().pipeline(transaction=False) as pipe:
        pipe.delete(*(f"{keys.PREFIX}mo:{message}" for message in ids))
        pipe.zrem(keys.MO_FINISHING, *ids)
        pipe.execute()
