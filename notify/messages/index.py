"""The search of Notify's messages for search, list and API, in hot tables and archive."""

import json
from collections.abc import Iterator, Sequence
from functools import partial

from django.db import connections
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext as _, gettext_lazy

from msgplatform.core.archive.description import horizon
from msgplatform.core.data import chunks, engines, ids as id_numbers, sql
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.messages import (
    MAX_SORTED,
    Check,
    Index,
    MessageStore,
    Reader,
    Source,
    Systems,
    Values,
    ordered,
    read_ids,
    read_parts,
)
from msgplatform.core.secrets import encryption
from msgplatform.messages.engine import exact_id
from msgplatform.models import Biz
from notify.archive import retention, stores
from notify.archive.stores import Store, reading
from notify.messages.fields import FIELDS
from notify.messages.page import file, page
from notify.messages.records import records
from notify.messages.states import ACCEPTED, STATUSES, lines, subscription_lines
from notify.models import BizMsg, BizReceive, IdempotencyKey, ReceiveMsg

_NAMED = 10  # systems in a sentence
_SYSTEMS = 100  # systems whose keys one statement reads
_DELIVERIES = 500  # deliveries whose answers one statement searches


# -- texts ---------------------------------------------------------------------------------------
def with_text(store: Store, values: Values, message_ids: Sequence[int]) -> set[int]:
    """The messages with the text in their payload or in the answer to an attempt."""
    text = values["text"]
    # The search compares bytes. JSON may write characters that are not ASCII as \u escapes, so each
    # spelling of the text is searched.
    connection = connections[store.using]
    engine = engines.of(store.using)
    needles = {text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
    holds = engine.contains("payload")
    # A sealed payload holds any short text by chance.
    is_clear = f"SUBSTR(payload, 1, {len(encryption.PREFIX)}) <> %s"
    places = ", ".join(["%s"] * len(message_ids))
    table = connection.ops.quote_name(store.messages.model._meta.db_table)
    statement = (
        f"SELECT id FROM {table} WHERE id IN ({places})"  # noqa: S608
        f" AND ({' OR '.join([holds] * len(needles))}) AND {is_clear}"
    )
    parameters = map(engine.bytes_of, (*sorted(needles), encryption.PREFIX))
    with connection.cursor() as cursor:
        cursor.execute(statement, [*message_ids, *parameters])
        ids_by_payload = {row_id for (row_id,) in cursor.fetchall()}
    other_ids = [pk for pk in message_ids if pk not in ids_by_payload]
    deliveries = dict(store.deliveries_of(other_ids).order_by().values_list("id", "msg_id"))
    ids: set[int] = set()
    for chunk_ids in chunks(sorted(deliveries), _DELIVERIES):
        rows = store.attempts_of(chunk_ids).filter(
            Q(response_body__contains=text)
            | Q(response_headers__contains=text)
            | Q(detail__contains=text)
        )
        columns = "copy_id", "response_body", "response_headers", "detail"
        for pk, *answer in rows.order_by().values_list(*columns):
            if any(text in part for part in answer):  # SQLite's `contains` ignores the case
                ids.add(deliveries[pk])
    return ids_by_payload | ids


# -- indexes -------------------------------------------------------------------------------------
def _by_name(store: Store) -> list[Index]:
    """The messages that an id or an idempotency key names: the id may be that of a delivery."""

    def ids(values: Values) -> set[int]:
        sets = []
        if "id" in values:
            rows = store.deliveries.filter(id=values["id"])
            sets.append({values["id"], *rows.values_list("msg_id", flat=True)})
        if "key" in values:
            sets.append(set(_ids_of_key(store, values)))
        return set.intersection(*sets)

    return [
        Index(fields, lambda _source, values: read_ids(ids(values), values), is_shared=is_shared)
        for fields, is_shared in ((("id", "key"), False), (("id",), True), (("key",), False))
    ]


def _ids_of_key(store: Store, values: Values) -> Iterator[int]:
    key = values["key"]
    if store.cold:
        yield from store.messages.filter(key=key).values_list("id", flat=True)
        return
    # The index begins with the bucket, which follows from business system and key.
    systems = [values["biz"]] if "biz" in values else Biz.objects.values_list("id", flat=True)
    for system_ids in chunks(sorted(systems), _SYSTEMS):
        buckets = Q()
        for biz_id in system_ids:
            buckets |= Q(bucket=id_numbers.bucket(biz_id, key), biz_id=biz_id, key=key)
        yield from IdempotencyKey.objects.filter(buckets).values_list("id", flat=True)


def _read_accepted(source: Source, values: Values) -> Reader | None:
    if values["status"] != ACCEPTED:
        return None
    rows = source.rows().filter(state=BizMsg.State.ACCEPTED).order_by("-id")
    return read_parts([rows], values, "id")


def _in_few_deliveries(_source: Source, values: Values) -> Reader | None:
    """Messages of hot deliveries in this status; no index when there are too many to be sorted."""
    rows = stores.hot().deliveries.filter(status=STATUSES[values["status"]]).order_by()
    if "subscription" in values:
        rows = rows.filter(biz_receive_id=values["subscription"])
    if rows.values("id")[: MAX_SORTED + 1].count() > MAX_SORTED:
        return None
    return read_ids(rows.values_list("msg_id", flat=True), values)


def _of_owner(source: Source, values: Values) -> Reader | None:
    """Messages of the subscription's system. None, so that no index is used, for a deleted
    subscription."""
    owner = BizReceive.objects.filter(id=values["subscription"]).values_list("biz_id", flat=True)
    biz_id = values.get("biz", owner.first())
    if biz_id is None:
        return None
    rows = sql.of_one(source.rows(), "biz_id", biz_id)
    return read_parts([rows.order_by("-biz_id", "-id")], values, "id")


def _archived_deliveries(field: str, column: str) -> Index:
    """Indexes of archived deliveries go on with the message's id."""

    def read_deliveries(_source: Source, values: Values) -> Reader | None:
        value = values[field] if field == "subscription" else STATUSES.get(values[field])
        if value is None:  # an archived message is not waiting to be split
            return read_ids((), values)
        if field == "status" and value == ReceiveMsg.Status.DELIVERED and "biz" in values:
            return None  # nearly all are delivered: the index of the system narrows more
        rows = stores.cold().deliveries.filter(**{column: value}).order_by("-msg_id").distinct()
        return read_parts([rows], values, "msg_id")

    return Index((field,), read_deliveries)


def messages_of(store: Store, values: Values) -> Source:
    """The messages of a store that match this filter."""

    def with_delivery(checked_values: Values, ids: Sequence[int]) -> set[int]:
        status, subscription = (checked_values.get(name) for name in ("status", "subscription"))
        if status == ACCEPTED and subscription is None:
            return set(ids)
        rows = store.deliveries_of(ids)
        if subscription is not None:
            rows = rows.filter(biz_receive_id=subscription)
        if status in STATUSES:
            rows = rows.filter(status=STATUSES[status])
        return set(rows.order_by().values_list("msg_id", flat=True))

    def in_state(status: str) -> Q:
        if status != ACCEPTED:
            return Q()  # of deliveries: checked below
        return Q(id__lt=0) if store.cold else Q(state=BizMsg.State.ACCEPTED)

    by_delivery = (
        [
            _archived_deliveries("subscription", "biz_receive_id"),
            _archived_deliveries("status", "status"),
        ]
        if store.cold
        else [
            Index(("status",), _read_accepted),
            Index(("status",), _in_few_deliveries, decides=(), is_shared=True),
            Index(("subscription",), _of_owner, decides=("biz",)),
        ]
    )
    return Source(
        rows=lambda: store.messages,
        lines=partial(lines, store, values),
        reading=partial(reading, store),
        indexes=[
            *_by_name(store),
            *by_delivery,
            ordered("biz", "event_type"),
            ordered("event_type"),
            ordered("biz"),
        ],
        conditions={
            "biz": "biz_id",
            "event_type": "event_type",
            "channel": "channel",
            "status": in_state,
        },
        checks=[
            Check(("subscription", "status"), with_delivery),
            Check(("text",), partial(with_text, store)),
        ],
    )


def _readings(query: str, _personal: bool) -> Iterator[Values]:
    """A message's or a delivery's id, an idempotency key or an exact event type."""
    yield from exact_id(query)
    yield {"key": query}
    yield {"event_type": query}


def _check(values: Values) -> None:
    narrowing = ("biz", "subscription", "since", "until", "id", "key")
    if "text" in values and not any(name in values for name in narrowing):
        raise InvalidInput(_("narrow it by a system, a subscription or a time"), "text")
    encrypting = Biz.objects.filter(encrypts_payloads=True)
    if "text" in values and "biz" in values and encrypting.filter(id=values["biz"]).exists():
        text = _("the payloads of this system are encrypted, and cannot be searched")
        raise InvalidInput(text, "text")


def _warning(systems: Systems) -> str:
    """A sentence about messages that a search in these business systems cannot find now."""
    rows = Biz.objects.filter(encrypts_payloads=True)
    if systems is not None:
        rows = rows.filter(id__in=systems)
    names = rows.values_list("name", flat=True)[:_NAMED]
    sentence = _("Encrypted payloads are not searched: %s.") % ", ".join(names) if names else ""
    return " ".join(text for text in (stores.archive_warning(), sentence) if text)


MESSAGES = MessageStore(
    fields=FIELDS,
    # The hot store counts: a killed archiver may have left a copy of a hot message in the archive.
    sources=lambda values: [messages_of(store, values) for store in stores.both()],
    readings=_readings,
    other_lines=subscription_lines,
    check=_check,
    page=page,
    file=file,
    searched_text_label=gettext_lazy("payloads and answers"),
    search_warning=_warning,
    records=records,
    # Younger messages have not been archived yet.
    first_certain_id=lambda: horizon(timezone.now(), retention.keep()),
)
