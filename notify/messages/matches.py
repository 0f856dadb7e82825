"""Which of some messages match the whole filter."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from django.db import connections
from django.db.models import BooleanField, ExpressionWrapper, Q

from notify.archive.stores import Store
from notify.messages.candidates import ACCEPTED, STATUSES
from notify.messages.filters import Filter
from notify.models import BizMsg

_CHUNK = 500


def matching(place: Store, message_ids: Sequence[int], filter: Filter) -> set[int]:
    """Which of these messages (at most 500, all in this place) match."""
    rows, asked = place.messages.filter(id__in=message_ids).order_by(), Q()
    for field, value in (
        ("biz_id", filter.biz),
        ("event_type", filter.event_type),
        ("channel", filter.channel),
    ):
        if value is not None:
            asked &= Q(**{field: value})
    if filter.status == ACCEPTED:
        asked &= Q(state=BizMsg.State.ACCEPTED)
    if filter.status == ACCEPTED and place.cold:
        return set()
    if asked:
        # Not as a condition: MariaDB would read all messages of a system and type by their index.
        fits = ExpressionWrapper(asked, BooleanField())
        left = {pk for pk, is_wanted in rows.values_list("id", fits) if is_wanted}
    else:
        left = set(rows.values_list("id", flat=True))
    # Each further question is asked only of the messages that are left: texts are read last.
    if left and (filter.subscription is not None or filter.status not in (None, ACCEPTED)):
        deliveries = place.deliveries_of(sorted(left))
        if filter.subscription is not None:
            deliveries = deliveries.filter(biz_receive_id=filter.subscription)
        if filter.status in STATUSES:
            deliveries = deliveries.filter(status=STATUSES[filter.status])
        left = set(deliveries.order_by().values_list("msg_id", flat=True))
    if left and filter.text is not None:
        found = set(_with_payload(place, sorted(left), filter.text))
        left = found | _with_answer(place, sorted(left - found), filter.text)
    return left


def _with_payload(place: Store, message_ids: Sequence[int], text: str) -> Iterator[int]:
    """Bytes are compared. JSON may write letters that are not ASCII as \\u escapes, so the text is
    looked for in each way that it can be written."""
    connection = connections[place.using]
    mysql = connection.vendor == "mysql"
    needles = {text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
    holds = "LOCATE(%s, payload) > 0" if mysql else "INSTR(payload, %s) > 0"
    places = ", ".join(["%s"] * len(message_ids))
    table = connection.ops.quote_name(place.messages.model._meta.db_table)
    statement = (
        f"SELECT id FROM {table} WHERE id IN ({places})"  # noqa: S608
        f" AND ({' OR '.join([holds] * len(needles))})"
    )
    # MySQL compares a text with the column's bytes as UTF-8; SQLite only bytes with bytes.
    parameters = [needle if mysql else needle.encode() for needle in sorted(needles)]
    with connection.cursor() as cursor:
        cursor.execute(statement, [*message_ids, *parameters])
        yield from (row_id for (row_id,) in cursor.fetchall())


def _with_answer(place: Store, message_ids: Sequence[int], text: str) -> set[int]:
    deliveries = dict(place.deliveries_of(message_ids).order_by().values_list("id", "msg_id"))
    delivery_ids = sorted(deliveries)
    found: set[int] = set()
    for start in range(0, len(delivery_ids), _CHUNK):
        rows = place.attempts_of(delivery_ids[start : start + _CHUNK]).filter(
            Q(response_body__contains=text)
            | Q(response_headers__contains=text)
            | Q(detail__contains=text)
        )
        found.update(deliveries[pk] for pk in rows.order_by().values_list("copy_id", flat=True))
    return found
