"""The keys of a Redis in which a person stands, whatever their types."""

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import redis

from msgplatform.core.person.identity import Person
from msgplatform.core.person.stores import Row, Slice

_PAGE = 500  # keys of one slice
_READERS: dict[bytes, Callable[[Any, bytes], Any]] = {
    b"string": lambda pipe, key: pipe.get(key),
    b"hash": lambda pipe, key: pipe.hgetall(key),
    b"list": lambda pipe, key: pipe.lrange(key, 0, -1),
    b"set": lambda pipe, key: pipe.smembers(key),
    b"zset": lambda pipe, key: pipe.zrange(key, 0, -1),
}


def find(
    client: redis.Redis,
    person: Person,
    cursor: str,
    is_skipped: Callable[[str], bool],
    is_open: Callable[[str], bool],
) -> Slice:
    """The keys of the next slice with a number or an address of the person in their name or values.
    Values may be compressed by zlib, such as RQ's jobs.

    A key that exists all the time is found in any case; a new key may be found. Only the name of a
    key is shown, because its value may be about other people, too.
    """
    if not (person.phones or person.emails):
        return Slice(())
    answer: Any = client.scan(int(cursor or 0), count=_PAGE)
    next_cursor, keys = answer
    keys = [key for key in keys if not is_skipped(key.decode(errors="replace"))]
    rows = []
    for key, value in zip(keys, _values(client, keys), strict=True):
        name = key.decode(errors="replace")
        if any(person.is_in_bytes(part) for part in (key, *parts(value))):
            rows.append(Row(name, {"key": name}, is_open(name)))
    return Slice(rows, str(next_cursor) if next_cursor else "")


def _values(client: redis.Redis, keys: Sequence[bytes]) -> list[Any]:
    if not keys:
        return []
    with client.pipeline(transaction=False) as pipe:
        for key in keys:
            pipe.type(key)
        kinds = pipe.execute()
        # A key of another kind, such as a stream, is of no program of the platform.
        readers = [_READERS.get(kind) for kind in kinds]
        for key, reader in zip(keys, readers, strict=True):
            if reader:
                reader(pipe, key)
        # A key whose type has changed meanwhile is an error, and read in the next pass.
        values = iter(pipe.execute(raise_on_error=False))
    return [next(values) if reader else None for reader in readers]


def parts(value: Any) -> Iterator[bytes]:
    """Each piece of a value, unchanged and decompressed."""
    if isinstance(value, dict):
        pieces: Sequence[Any] = [*value.keys(), *value.values()]
    elif isinstance(value, list | set):
        pieces = list(value)
    else:
        pieces = [value]
    for piece in pieces:
        if isinstance(piece, bytes):
            yield piece
            if piece[:1] == b"\x78":  # how zlib's streams begin
                try:
                    yield zlib.decompress(piece)
                except zlib.error:
                    continue
