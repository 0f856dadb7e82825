"""The idempotency rows of a business system that moves from one cell to another."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from msgplatform.core.data import ids, sql
from msgplatform.core.errors import Conflict, InvalidInput
from msgplatform.core.intake.idempotency import MAX_KEY_LENGTH, IdempotencyRow

_PAGE = 1000


class _Row(msgspec.Struct, array_like=True):
    id: int
    key: str
    payload_hash: str
    created_at: datetime


class TableKeys:
    """The keys in a table of a flow; a KeyStore."""

    def __init__(self, model: type[IdempotencyRow]) -> None:
        self._model = model
        self.name = str(model._meta.label_lower)

    def read(self, biz: int) -> Iterator[list[Any]]:
        # Read the rows by the unique index, page by page.
        columns = ("id", "key", "payload_hash", "created_at")
        for bucket in range(ids.BUCKETS):
            rows, last_key = self._model._base_manager.filter(bucket=bucket, biz_id=biz), ""
            while page := list(
                rows.filter(key__gt=last_key).order_by("key").values_list(*columns)[:_PAGE]
            ):
                yield from map(list, page)
                last_key = page[-1][1]

    def write(self, biz: int, rows: Sequence[list[Any]]) -> None:
        try:
            new_rows = msgspec.convert(rows, list[_Row])
        except msgspec.ValidationError as error:
            raise InvalidInput(f"a row of {self.name} is malformed: {error}") from None
        if any(len(row.key) > MAX_KEY_LENGTH or row.id < 0 for row in new_rows):
            raise InvalidInput(f"a row of {self.name} has a key or an id that is too long")
        # The bucket depends on the system's id, which differs between cells.
        sql.insert_or_keep(
            self._model._meta.db_table,
            ("id", "bucket", "biz_id", "key", "payload_hash", "created_at"),
            [
                (
                    row.id, ids.bucket(biz, row.key), biz, row.key, row.payload_hash,
                    sql.stored(row.created_at),
                )
                for row in new_rows
            ],
        )  # fmt: skip
        stored_rows = self._model._base_manager.filter(
            id__in=[row.id for row in new_rows], biz_id=biz
        )
        new_keys = {(row.id, row.key) for row in new_rows}
        if missing_keys := new_keys - set(stored_rows.values_list("id", "key")):
            raise Conflict(
                f"{len(missing_keys)} keys of {self.name} name other messages in this cell, such "
                f"as that of message {min(missing_keys)[0]}"
            )
