"""Two people with data in every flow, and everything that the databases and Redis hold of them.

`Someone` has a phone number, an address and a name that stand nowhere else; `stored` reads all
tables and all keys, so that a test can look for them.
"""

import base64
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
from django.db import connections

from gateway.connections import sms_redis
from msgplatform.core.connections import work_redis


@dataclass(frozen=True)
class Someone:
    """A person: `uid` is the user of the business system, `name` is no identifier."""

    phone: str
    email: str
    uid: str
    name: str

    @cached_property
    def needles(self) -> list[bytes]:
        """All spellings, also as JSON escapes them, the user and the name."""
        texts = [*self.numbers, *self.addresses, *self.encoded, self.uid, self.name]
        return sorted({form.encode() for text in texts for form in (text, json.dumps(text)[1:-1])})

    @property
    def spellings(self) -> list[str]:
        """The number as people write it."""
        p = self.phone
        return [p, f"+86{p}", f"0086 {p[:3]} {p[3:7]} {p[7:]}", f"{p[:3]}-{p[3:7]}-{p[7:]}"]

    @property
    def numbers(self) -> list[str]:
        """The number as people and their programs write it."""
        a, b, c = self.phone[:3], self.phone[3:7], self.phone[7:]
        signs = [*" -/.~·\u00a0\u2009\u3000\u2010\u2011\u2013\u2014\u2212\u200b\u00ad\u2060",
                 " - ", "--", " / "]  # fmt: skip
        return [
            *self.spellings, f"86{a}{b}{c}", f"86-{a}{b}{c}", f"({a}) - {b}{c}", f"（{a}）{b}-{c}",
            f"+86 (0) {a} {b} {c}", f"tel:+86-{a}-{b}-{c}", f"\u202d{a}{b}{c}\u202c",
            f"＋８６{a}{b}{c}", " ".join(self.phone),
            *(self.phone.translate(dict(zip(b"0123456789", digits, strict=True)))
              for digits in ("０１２３４５６７８９", "٠١٢٣٤٥٦٧٨٩", "𝟎𝟏𝟐𝟑𝟒𝟓𝟔𝟕𝟖𝟗")),
            *(sign.join((a, b, c)) for sign in signs),
        ]  # fmt: skip

    @property
    def addresses(self) -> list[str]:
        """The address likewise."""
        wide = "".join(chr(ord(letter) + 0xFEE0) for letter in self.email)
        return [self.email, self.email.upper(), self.email.title(), f"mailto:{self.email}", wide]

    @property
    def encoded(self) -> list[str]:
        """Number and address as URLs, HTML, and JSON in JSON carry them."""
        a, b, c = self.phone[:3], self.phone[3:7], self.phone[7:]
        at = [self.email.replace("@", sign) for sign in ("%40", "%2540", "&#64;", "\\u0040")]
        in_base64 = base64.b64encode(f"call {self.phone}, {self.email}".encode()).decode()
        return [*at, f"%2B86{a}{b}{c}", f"{a}%20{b}%20{c}", f"{a}&nbsp;{b}&nbsp;{c}",
                f"{a}\\u2011{b}\\u2011{c}", f"<{self.email}>", in_base64,
                f"{a}%E3%80%9C{b}%E3%80%9C{c}", f"{a}&ndash;{b}&#8209;{c}", f"{a}<b>{b}</b>{c}",
                "".join("〇一二三四五六七八九"[int(digit)] for digit in self.phone)]  # fmt: skip


# Digits that no id, time or port in a test holds.
ANN = Someone("13911122233", "ann.planted@example.com", "user-ann-4711", "Planted-Ann")
BOB = Someone("13944455566", "bob.other@example.com", "user-bob-4712", "Other-Bob")


Rows = dict[str, list[tuple[bytes, ...]]]


def tables(*aliases: str) -> Rows:
    """Every row of every table as bytes: "alias.table" → rows, sorted."""
    rows: Rows = {}
    for alias in aliases or tuple(connections):
        connection = connections[alias]
        with connection.cursor() as cursor:
            for table in connection.introspection.table_names(cursor):
                cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)}")
                rows[f"{alias}.{table}"] = sorted(
                    tuple(_bytes(value) for value in row) for row in cursor.fetchall()
                )
    return rows


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes | memoryview | bytearray):
        return bytes(value)
    return str(value).encode()


def keys(client: Any) -> dict[str, list[bytes]]:
    """Every key of a Redis with its pieces, also decompressed."""
    readers = {
        b"string": lambda key: [client.get(key) or b""],
        b"hash": lambda key: [part for pair in client.hgetall(key).items() for part in pair],
        b"list": lambda key: client.lrange(key, 0, -1),
        b"set": lambda key: list(client.smembers(key)),
        b"zset": lambda key: client.zrange(key, 0, -1),
    }
    found: dict[str, list[bytes]] = {}
    for key in client.scan_iter():
        reader = readers.get(client.type(key))
        pieces = reader(key) if reader else []
        found[key.decode()] = [each for piece in pieces for each in _unpacked(piece)]
    return found


def _unpacked(piece: bytes) -> Iterator[bytes]:
    yield piece
    try:
        yield zlib.decompress(piece)
    except zlib.error:
        return


def redis_keys() -> dict[str, list[bytes]]:
    """The keys of both Redis, by name."""
    both = (("work", work_redis()), ("sms", sms_redis()))
    return {f"{name} {key}": value for name, c in both for key, value in keys(c).items()}


def holders(someone: Someone, rows: Rows, values: dict[str, list[bytes]]) -> set[str]:
    """The tables and keys in which something of this person stands."""

    def is_theirs(pieces: Any) -> bool:
        return any(needle in piece for piece in pieces for needle in someone.needles)

    names = {table for table, page in rows.items() if any(map(is_theirs, page))}
    return names | {key for key, pieces in values.items() if is_theirs([key.encode(), *pieces])}


def of_others(someone: Someone, rows: Rows, without: set[str]) -> Rows:
    """The rows in which nothing of this person stands, of all tables but these."""
    return {
        table: [row for row in page if not any(n in v for v in row for n in someone.needles)]
        for table, page in rows.items()
        if table.partition(".")[2] not in without
    }


def payload(someone: Someone, **more: Any) -> bytes:
    return msgspec.json.encode({
        "order": "20261126-1", "amount": 99.10,
        "customer": {"name": someone.name, "phone": someone.phone, "email": someone.email,
                     "id": someone.uid},
        **more,
    })  # fmt: skip


FIELDS = ["/customer/name", "/customer/phone", "/customer/email", "/customer/id",
          "/passengers/*/name", "/passengers/*/phone"]  # fmt: skip
