"""The log of attempts: written by the marker in the transaction that marks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from msgplatform.core.data import ids, sql
from notify.models import Attempt
from notify.orders import Result

_COLUMNS = (
    "id", "copy_id", "claim", "number", "at", "seconds", "http_status", "error", "detail",
    "response_headers", "response_body",
)  # fmt: skip


def made(results: Sequence[Result]) -> list[Result]:
    """Those that are attempts: what was given back unsent is none."""
    return [result for result in results if result.outcome != "unsent"]


def write(results: Sequence[Result], block: ids.Block) -> None:
    """A row for each; one that is there already (the batch is repeated) is left as it is."""
    row_ids = block.ids([ids.bucket_of(result.id) for result in results])
    sql.insert_or_keep(
        Attempt._meta.db_table,
        _COLUMNS,
        [
            (
                row_id, r.id, r.claim, r.attempt, datetime.fromtimestamp(r.at, UTC), r.seconds,
                r.http_status, r.error[:32], r.detail[:300], r.response_headers, r.response_body,
            )
            for row_id, r in zip(row_ids, results, strict=True)
        ],
    )  # fmt: skip
