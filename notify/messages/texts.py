"""Messages whose payload, or whose consumers' answers, hold a text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from django.db import connections
from django.db.models import Q

from msgplatform.core.data.chunks import chunks
from msgplatform.core.flows.messages import Values
from msgplatform.core.secrets import encryption
from notify.archive.stores import Store

_CHUNK = 500  # deliveries of one statement


def with_text(store: Store, values: Values, message_ids: Sequence[int]) -> set[int]:
    """The messages with the text in their payload or in the answer to an attempt."""
    text = values["text"]
    ids_by_payload = set(_with_payload(store, message_ids, text))
    other_ids = [pk for pk in message_ids if pk not in ids_by_payload]
    return ids_by_payload | _with_answer(store, other_ids, text)


def _with_payload(store: Store, message_ids: Sequence[int], text: str) -> Iterator[int]:
    """Bytes are compared. JSON may write letters that are not ASCII as \\u escapes, so the text is
    looked for in each way that it can be written."""
    connection = connections[store.using]
    mysql = connection.vendor == "mysql"
    needles = {text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
    holds = "LOCATE(%s, payload) > 0" if mysql else "INSTR(payload, %s) > 0"
    # A sealed payload holds any short text by chance.
    is_clear = f"SUBSTR(payload, 1, {len(encryption.PREFIX)}) <> %s"
    places = ", ".join(["%s"] * len(message_ids))
    table = connection.ops.quote_name(store.messages.model._meta.db_table)
    statement = (
        f"SELECT id FROM {table} WHERE id IN ({places})"  # noqa: S608
        f" AND ({' OR '.join([holds] * len(needles))}) AND {is_clear}"
    )
    # MySQL compares a text with the column's bytes as UTF-8; SQLite only bytes with bytes.
    texts = [*sorted(needles), encryption.PREFIX]
    parameters = [text if mysql else text.encode() for text in texts]
    with connection.cursor() as cursor:
        cursor.execute(statement, [*message_ids, *parameters])
        yield from (row_id for (row_id,) in cursor.fetchall())


def _with_answer(store: Store, message_ids: Sequence[int], text: str) -> set[int]:
    deliveries = dict(store.deliveries_of(message_ids).order_by().values_list("id", "msg_id"))
    ids: set[int] = set()
    for some in chunks(sorted(deliveries), _CHUNK):
        rows = store.attempts_of(some).filter(
            Q(response_body__contains=text)
            | Q(response_headers__contains=text)
            | Q(detail__contains=text)
        )
        ids.update(deliveries[pk] for pk in rows.order_by().values_list("copy_id", flat=True))
    return ids
