"""The idempotency keys of SMS, which move with a business system to another cell.

Redis has the keys as digests, so that they are found through the messages: in Redis first, then in
the archive, to which a message may go meanwhile.
"""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import msgspec
from django.conf import settings

from gateway.connections import sms_redis
from gateway.lifecycle import keys, store
from gateway.models import SgipMt
from msgplatform.core.data import ids, sql
from msgplatform.core.errors import Conflict, InvalidInput

_PAGE = 500


class _Row(msgspec.Struct, array_like=True):
    key: str
    payload_hash: str
    ids: list[str]
    seconds: int  # that the key is still remembered


class SmsKeys:
    """The keys of calls, as a KeyStore. A key may be read more than once."""

    name = "gateway.sms"

    def read(self, biz: int) -> Iterator[list[Any]]:
        for page in self._pages(biz):
            names = [keys.idempotency(biz, key) for key in page]
            pipeline = sms_redis().pipeline(transaction=False)
            for name in names:
                pipeline.ttl(name)
            first_calls = store.first_calls([(biz, key) for key in page])
            for key, first, seconds in zip(page, first_calls, pipeline.execute(), strict=True):
                if first is not None and seconds > 0:
                    yield [key, first.hash, first.ids, seconds]

    def write(self, biz: int, rows: Sequence[list[Any]]) -> None:
        try:
            moved_rows = msgspec.convert(rows, list[_Row])
        except msgspec.ValidationError as error:
            raise InvalidInput(f"a row of {self.name} is malformed: {error}") from None
        pipeline = sms_redis().pipeline(transaction=False)
        for row in moved_rows:
            first = msgspec.json.encode({"hash": row.payload_hash, "ids": row.ids})
            pipeline.set(keys.idempotency(biz, row.key), first, ex=max(1, row.seconds), nx=True)
        pipeline.execute()
        calls = store.first_calls([(biz, row.key) for row in moved_rows])
        for row, call in zip(moved_rows, calls, strict=True):
            if call is not None and call.ids != row.ids:
                raise Conflict(f"a key of {self.name} names other messages here: {call.ids[0]}")

    def _pages(self, biz: int) -> Iterator[list[str]]:
        cursor = 0
        while True:
            cursor, messages = store.scan(cursor, _PAGE)
            yield sorted({mt.key for mt, _final in messages if mt.biz == biz and mt.key})
            if not cursor:
                break
        since = sql.now() - timedelta(seconds=settings.SMS_IDEMPOTENCY_SECONDS)
        rows, last = SgipMt.objects.filter(biz_id=biz).order_by("id"), ids.first_id_at(since) - 1
        while page := list(rows.filter(id__gt=last).values_list("id", "idempotency_key")[:_PAGE]):
            yield sorted({key for _id, key in page if key})
            last = page[-1][0]
