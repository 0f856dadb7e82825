"""Find and export a person's data, without changing any."""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
from django.core.serializers.json import DjangoJSONEncoder

from msgplatform.company.person_data.stores import all_stores
from msgplatform.core.connections import RedisError
from msgplatform.core.data import sql
from msgplatform.core.errors import UNAVAILABLE
from msgplatform.core.flows.text import Text
from msgplatform.core.person.identity import Person
from msgplatform.core.person.stores import PersonStore, Row, all_rows

SAMPLE = 3
# Seconds. A person waits for the page, and tables with many millions of messages take longer.
PREVIEW_SECONDS = 20.0


class Hits(msgspec.Struct, frozen=True):
    """The rows of a person in one store: their number, the number on their way, and some rows.

    `is_whole` is False if the time ended first, or if the store could not be read.
    """

    store: PersonStore
    count: int = 0
    open_count: int = 0
    sample: tuple[Row, ...] = ()
    is_whole: bool = True

    @property
    def title(self) -> Text:
        return self.store.title

    @property
    def flow(self) -> str:
        """The flow's name; '' for a store of the platform."""
        flow, dot, _name = self.store.name.partition(".")
        return flow if dot else ""


def preview(person: Person, seconds: float = PREVIEW_SECONDS) -> list[Hits]:
    """The content of each store that holds something, counted for at most so many seconds."""
    until = time.monotonic() + seconds
    hits = []
    for store in all_stores():
        count, open_count, sample = 0, 0, list[Row]()
        cursor, is_first = "", True
        with suppress(*UNAVAILABLE, RedisError):
            while is_first or (cursor and time.monotonic() <= until):
                part = store.find(person, cursor)
                count += len(part.rows)
                open_count += sum(row.is_open for row in part.rows)
                sample += part.rows[: SAMPLE - len(sample)]
                cursor, is_first = part.cursor, False
        is_whole = not (cursor or is_first)
        if count or not is_whole:
            hits.append(Hits(store, count, open_count, tuple(sample), is_whole))
    return hits


def export(person: Person) -> Iterator[bytes]:
    """One JSON document in pieces: who was asked for, and by store everything that is held.

    A row that moves meanwhile, such as to an archive, may be in it twice.
    """
    head = {"exported_at": sql.now(), "person": dict(person.identifiers)}
    yield _dump(head)[:-1] + b', "data": {'
    for number, store in enumerate(all_stores()):
        yield (b", " if number else b"") + _dump(store.name) + b": ["
        for place, row in enumerate(all_rows(store, person)):
            yield (b",\n" if place else b"\n") + _dump(row.data)
        yield b"]"
    yield b"}}\n"


def _dump(value: Any) -> bytes:
    return json.dumps(value, cls=DjangoJSONEncoder, ensure_ascii=False).encode()
