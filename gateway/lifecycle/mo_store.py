"""MOs and UserRpts in Redis: taken in once, long ones joined, kept until they are archived.

The parts of a long MO wait in one hash, where every receiver finds them:

    keep_part ─▶ waiting ─ the last part ─▶ whole ─ join_parts ─▶ taken in, the parts are deleted
                    │ late_parts: PARTS_SECONDS are over            ▲
                    │ cut: a new message with the same reference    │
                    └───────────────────────────────────────────────┘
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gateway.connections import sms_redis
from gateway.lifecycle import keys, scripts
from gateway.lifecycle.messages import Mo
from gateway.lifecycle.store import Lease
from msgplatform.core.connections import clock

SequenceWords = tuple[int, int, int]

# Seconds in which a Deliver that a gateway repeats is recognised.
SEEN_SECONDS = 86_400
# Seconds for which parts wait for each other.
PARTS_SECONDS = 7_200
_DIGEST = 40  # hexadecimal digits of SHA-1


def accept(mos: Sequence[tuple[Mo, SequenceWords]]) -> list[bool]:
    """Take in each MO under its request's sequence; False for a duplicate. Other content under the
    same sequence is another MO: a gateway that was started again counts from the beginning."""
    arguments: list[scripts.Argument] = [SEEN_SECONDS]
    for mo, sequence in mos:
        arguments += [*_seen_keys(mo, sequence), mo.id, msgspec.json.encode(mo)]
    return [bool(answer) for answer in scripts.run_replicated("mo", arguments)] if mos else []


class KeptPart(msgspec.Struct, frozen=True):
    """The result for a part: waiting, whole, or cut (`parts` belong to an older message)."""

    what: str
    parts: dict[int, Mo]


def keep_part(
    parts_key: str, number: int, total: int, part: Mo, sequence: SequenceWords
) -> KeptPart:
    """Keep one part; repeating it changes nothing. `part.content` is the payload."""
    digest = hashlib.sha1(part.content, usedforsecurity=False).hexdigest()
    what, *flat = scripts.run_replicated(
        "mo_keep",
        [number, total, digest, msgspec.json.encode(part), PARTS_SECONDS, SEEN_SECONDS],
        [parts_key, *_seen_keys(part, sequence, number)],
    )
    return KeptPart(what.decode(), _parts(dict(zip(flat[::2], flat[1::2], strict=True))))


def join_parts(parts_key: str, mo: Mo, parts: Mapping[int, Mo]) -> bool:
    """Take in the message made from these parts. False if it was taken in already or other parts
    have replaced these."""
    # The parts' ids show whether a new message with this reference has begun meanwhile.
    arguments: list[scripts.Argument] = [mo.id, msgspec.json.encode(mo)]
    for number, part in parts.items():
        arguments += [number, part.id]
    return bool(scripts.run_replicated("mo_join", arguments, [parts_key]))


def late_parts(count: int) -> dict[str, dict[int, Mo]]:
    """Parts that waited long enough for the others, by their key."""
    # Redis' clock gave the times. The first process that joins the parts deletes them.
    client: Any = sms_redis()
    names = client.zrangebyscore(keys.MO_PARTS, "-inf", clock(client), 0, count)
    return {name.decode(): _parts(client.hgetall(name)) for name in names}


def _seen_keys(mo: Mo, sequence: SequenceWords, number: int = 0) -> tuple[str, str]:
    """The keys of a duplicate: with the content, and in the form of an earlier version."""
    identity = (mo.kind, mo.user_number, mo.sp_number, number, mo.user_condition, mo.content)
    digest = hashlib.sha1(msgspec.json.encode(identity), usedforsecurity=False).hexdigest()[:16]
    return keys.mo_seen(*sequence, digest), keys.mo_seen(*sequence)


def _parts(rows: dict[bytes, bytes]) -> dict[int, Mo]:
    """Each row has the digest of the content, which scripts compare, and then the JSON."""
    return {
        int(number): msgspec.json.decode(row[_DIGEST:], type=Mo) for number, row in rows.items()
    }


def read(ids: Sequence[str]) -> list[Mo]:
    """The messages with these ids, without those that are gone."""
    with sms_redis().pipeline(transaction=False) as pipe:
        for message in ids:
            pipe.hget(keys.mo(message), "msg")
        rows = pipe.execute()
    return [msgspec.json.decode(row, type=Mo) for row in rows if row]


def rewrite(mos: Sequence[Mo], lease: Lease) -> bool:
    """Write down new facts about MOs, such as their owner. Returns False, and writes nothing, if
    another caller has taken over one of the MOs that the caller had by `lease`."""
    arguments: list[scripts.Argument] = [lease.until]
    for mo in mos:
        arguments += [mo.id, msgspec.json.encode(mo)]
    return not mos or bool(scripts.run("mo_rewrite", arguments, [lease.key]))


def forget(ids: Sequence[str]) -> None:
    """Delete the keys of messages that were archived."""
    if not ids:
        return
    with sms_redis().pipeline(transaction=False) as pipe:
        pipe.delete(*map(keys.mo, ids))
        pipe.zrem(keys.MO_FINISHING, *ids)
        pipe.execute()
