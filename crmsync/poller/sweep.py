"""The version sweep: rows that were never sent, or whose version is higher than what was sent.

It looks at every row, in pages by key, and asks no clock: it finds what no watermark can.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from crmsync.poller.database import Database
from crmsync.poller.increment import Key
from crmsync.poller.source import Source, SourceMismatch

Sent = Callable[[Sequence[Key]], Mapping[Key, int]]


@dataclass(frozen=True, slots=True)
class Swept:
    """The keys of a page whose rows must be sent, and where to go on (None at the end).

    `looked` is how many rows were compared.
    """

    behind: Sequence[Key]
    after: Key | None
    looked: int


def sweep(source: Source, sent: Sent, after: Key | None = None, limit: int = 1_000) -> Swept:
    """Compare up to `limit` rows after the key `after` with the versions that were sent.

    `sent(keys)` gives the version that was sent for each of those keys, without those that never
    were. Rows that are deleted softly count as others. Raises SourceMismatch when the source has no
    version, and what reading it raises.
    """
    if not source.columns.version:
        raise SourceMismatch("the source has no version column to compare")
    database = Database(source)
    key, version = database.quote(source.columns.key), database.quote(source.columns.version)
    condition, parameters = ("", []) if after is None else (f"WHERE {key} > %s", [after])
    rows = database.rows(
        f"SELECT {key}, {version} FROM {database.quote(source.table)} {condition} "  # noqa: S608
        f"ORDER BY {key} LIMIT {limit:d}",
        parameters,
    )
    known = sent([row[0] for row in rows])
    behind = [key for key, version in rows if key not in known or (version or 0) > known[key]]
    return Swept(behind, rows[-1][0] if len(rows) == limit else None, len(rows))
