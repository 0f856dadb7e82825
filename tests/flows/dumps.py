"""Everything that databases and Redis hold, as bytes to be searched for what must not be there."""

import base64
import binascii
import re
import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dj_database_url

_TOKEN = re.compile(rb"[A-Za-z0-9+/_-]{16,}")


def spellings(secret: str) -> set[bytes]:
    """The ways to write a secret; of a signing secret also its key and that key's other forms."""
    plain = secret.removeprefix("whsec_").encode()
    forms = {plain, plain.hex().encode(), base64.b64encode(plain).rstrip(b"=")}
    if secret.startswith("whsec_"):
        key = base64.b64decode(plain)
        forms |= {key, key.hex().encode(), base64.urlsafe_b64encode(key)}
    return forms


def found(secrets: set[str], held: Iterator[bytes]) -> set[str]:
    """Those of the secrets that are somewhere in it, also in what is compressed or base64."""
    # A dump repeats itself: names of columns, states, days.
    texts = {text for raw in set(held) for text in _readings(raw)}
    return {
        secret
        for secret in secrets
        if any(form in text for form in spellings(secret) for text in texts)
    }


def _readings(raw: bytes) -> Iterator[bytes]:
    yield raw
    yield from _inflated(raw)
    for token in _TOKEN.findall(raw):
        try:
            decoded = base64.urlsafe_b64decode(
                token.replace(b"+", b"-").replace(b"/", b"_") + b"=" * (-len(token) % 4)
            )
        except binascii.Error:
            continue
        yield decoded
        yield from _inflated(decoded)


def _inflated(raw: bytes) -> Iterator[bytes]:
    try:
        yield zlib.decompress(raw)
    except zlib.error:
        return


def database(url: str) -> Iterator[bytes]:
    """Every row of every table, one after another; of SQLite the bytes of its files too."""
    config = dj_database_url.parse(url)
    if url.startswith("sqlite"):
        with sqlite3.connect(config["NAME"], timeout=60) as connection:
            listed = "SELECT name FROM sqlite_master WHERE type = 'table'"
            yield from _rows(connection.cursor(), listed)
        path = Path(config["NAME"])
        for file in path.parent.glob(f"{path.name}*"):
            yield file.read_bytes()
        return
    import MySQLdb

    connection = MySQLdb.connect(
        user=config["USER"], db=config["NAME"], charset="utf8mb4",
        unix_socket=config["OPTIONS"]["unix_socket"],
    )  # fmt: skip
    try:
        yield from _rows(connection.cursor(), "SHOW TABLES")
    finally:
        connection.close()


def _rows(cursor: Any, listed: str) -> Iterator[bytes]:
    cursor.execute(listed)
    for (table,) in cursor.fetchall():
        cursor.execute(f"SELECT * FROM {table}")
        for row in cursor.fetchall():
            for value in row:
                yield value if isinstance(value, bytes) else str(value).encode()


def redis(client: Any) -> Iterator[bytes]:
    """Every key with its value."""
    read = {
        b"string": client.get, b"hash": client.hgetall, b"set": client.smembers,
        b"list": lambda key: client.lrange(key, 0, -1),
        b"zset": lambda key: client.zrange(key, 0, -1),
        b"stream": client.xrange,
    }  # fmt: skip
    for key in client.scan_iter(count=1000):
        yield key
        kind = client.type(key)
        if kind != b"none":  # gone meanwhile
            yield from _flat(read[kind](key))


def _flat(value: Any) -> Iterator[bytes]:
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, dict):
        for pair in value.items():
            yield from _flat(pair)
    elif isinstance(value, list | tuple | set):
        for part in value:
            yield from _flat(part)
