"""MOs and UserRpts in Redis: taken in once, joined when they are long, kept until archived."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gateway.connections import sms_redis
from gateway.lifecycle import keys, scripts
from gateway.lifecycle.messages import Mo

SequenceWords = tuple[int, int, int]

# How long a gateway may repeat a Deliver and still be recognised.
SEEN_SECONDS = 86_400


def accept(mos: Sequence[tuple[Mo, SequenceWords]]) -> list[bool]:
    """Take each in with the sequence of its request; False for a repeat."""
    arguments: list[scripts.Argument] = [SEEN_SECONDS]
    for mo, sequence in mos:
        arguments += [keys.mo_seen(*sequence), mo.id, msgspec.json.encode(mo)]
    return [bool(taken) for taken in scripts.run("mo", arguments)] if mos else []


def read(ids: Sequence[str]) -> list[Mo]:
    """Those that are there."""
    with sms_redis().pipeline(transaction=False) as pipe:
        for message in ids:
            pipe.hget(f"{keys.PREFIX}mo:{message}", "msg")
        rows = pipe.execute()
    return [msgspec.json.decode(row, type=Mo) for row in rows if row]


def rewrite(mos: Sequence[Mo]) -> None:
    """Write down what was found out about them, such as their owner."""
    if mos:
        scripts.run(
            "mo_rewrite", [value for mo in mos for value in (mo.id, msgspec.json.encode(mo))]
        )


def forget(ids: Sequence[str]) -> None:
    """Archived: their keys go."""
    if not ids:
        return
    with sms_redis().pipeline(transaction=False) as pipe:
        pipe.delete(*(f"{keys.PREFIX}mo:{message}" for message in ids))
        pipe.zrem(keys.MO_FINISHING, *ids)
        pipe.execute()
