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
            rows, last = self._model._base_manager.filter(bucket=bucket, biz_id=biz), ""
            while page := list(
                rows.filter(key__gt=last).order_by("key").values_list(*columns)[:_PAGE]
            ):
                yield from map(list, page)
                last = page[-1][1]

    def write(self, biz: int, rows: Sequence[list[Any]]) -> None:
        try:
            keys = msgspec.convert(rows, list[_Row])
        except msgspec.ValidationError as error:
            raise InvalidInput(f"a row of {self.name} is malformed: {error}") from None
        if any(len(key.key) > MAX_KEY_LENGTH or key.id < 0 for key in keys):
            raise InvalidInput(f"a row of {self.name} has a key or an id that is too long")
        # The bucket depends on the system's id, which differs between cells.
        sql.insert_or_keep(
            self._model._meta.db_table,
            ("id", "bucket", "biz_id", "key", "payload_hash", "created_at"),
            [
                (e.id, ids.bucket(biz, e.key), biz, e.key, e.payload_hash, sql.stored(e.created_at))
                for e in keys
            ],
        )
        key_ids = [key.id for key in keys]
        stored_rows = self._model._base_manager.filter(id__in=key_ids, biz_id=biz)
        stored_keys = set(stored_rows.values_list("id", "key"))
        if missing := {(key.id, key.key) for key in keys} - stored_keys:
            raise Conflict(
                f"{len(missing)} keys of {self.name} name other messages in this cell, such as "
                f"that of message {min(missing)[0]}"
            )
