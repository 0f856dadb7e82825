"""How messages are found: fields, indexes of hot tables and archive, conditions, lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from django.db import connections
from django.db.models import Q
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from msgplatform.api import filter_fields, filters
from msgplatform.core.data import ids as id_numbers
from msgplatform.core.data import sql
from msgplatform.core.data.chunks import chunks
from msgplatform.core.errors import InvalidInput, Unavailable
from msgplatform.core.flows import MAX_OPTIONS, Fields, FilterField, Hit, MessageStore, Option, Text
from msgplatform.core.flows.messages import (
    MAX_SORTED,
    Check,
    Index,
    Reader,
    Source,
    Values,
    ordered,
    read_ids,
    read_parts,
)
from msgplatform.messages.engine import exact_id
from msgplatform.models import Biz
from notify.archive import stores
from notify.archive.stores import Store, reading
from notify.messages.lines import lines
from notify.messages.timeline import file, page
from notify.models import BizMsg, BizReceive, IdempotencyKey, ReceiveMsg

ACCEPTED = "accepted"
STATUSES = {status.name.lower(): status for status in ReceiveMsg.Status}
_SYSTEMS = 100  # whose keys are asked for in one statement
_CHUNK = 500
_MAX_SUBSCRIPTIONS = 50  # of one URL


# -- fields --------------------------------------------------------------------------------------
def _read_subscription(text: str, field: str) -> int:
    """By its id, or by system and consumer: orders/warehouse."""
    biz, slash, receive = text.partition("/")
    if not slash:
        return filters.number(text, field)
    rows = BizReceive.objects.filter(biz__name=biz.strip(), receive__name=receive.strip())
    subscription = rows.values_list("id", flat=True).first()
    if subscription is None:
        raise InvalidInput(_("there is no such subscription; use system/consumer or its id"), field)
    return subscription


def _read_status(text: str, field: str) -> str:
    if text != ACCEPTED and text not in STATUSES:
        raise InvalidInput(f"use {', '.join((ACCEPTED, *STATUSES))}", field)
    return text


def _subscriptions(text: str) -> Sequence[Option]:
    """By a part of the names or titles of the system or the consumer; also orders/ware. An id, as
    links have it, is offered by its name."""
    rows = BizReceive.objects.select_related("biz", "receive")
    system, slash, consumer = text.partition("/")
    if slash:
        rows = rows.filter(_named("biz", system) & _named("receive", consumer))
    else:
        condition = _named("biz", text) | _named("receive", text)
        if text.isdecimal() and text.isascii() and len(text) < 19:
            condition |= Q(id=int(text))
        rows = rows.filter(condition)
    columns = ("biz__name", "receive__name", "biz__title", "receive__title")
    names = rows.order_by("biz__name", "receive__name").values_list(*columns)[:MAX_OPTIONS]
    return [
        Option(f"{biz}/{receive}", f"{biz_title or biz} → {title or receive}")
        for biz, receive, biz_title, title in names
    ]


def _named(what: str, text: str) -> Q:
    text = text.strip()
    return Q(**{f"{what}__name__icontains": text}) | Q(**{f"{what}__title__icontains": text})


def _event_types(text: str) -> Sequence[Option]:
    """Event types of hot messages that begin so: each is one dive into their index."""
    rows = BizMsg.objects.order_by("event_type").values_list("event_type", flat=True)
    names: list[str] = []
    following = rows.filter(event_type__gte=text).first()
    while following is not None and following.startswith(text) and len(names) < MAX_OPTIONS:
        names.append(following)
        following = rows.filter(event_type__gt=following).first()
    return [Option(name) for name in names]


def statuses(which: Iterable[int], help: Text = "", nothing: Text = "") -> FilterField:
    """A choice among these statuses of a delivery."""
    members = [ReceiveMsg.Status(status) for status in which]
    choices = [(status.name.lower(), status.label) for status in members]
    return filter_fields.choice(gettext_lazy("Status"), choices, help, nothing)


SUBSCRIPTION = FilterField(
    gettext_lazy("Subscription"),
    gettext_lazy("Type a part of its system or consumer"),
    "name",
    options=_subscriptions,
    read=_read_subscription,
)
EVENT_TYPE = FilterField(
    gettext_lazy("Event type"),
    gettext_lazy("Exact, such as order.paid"),
    "name",
    options=_event_types,
)
_STATUS = statuses(ReceiveMsg.Status)
FIELDS: Fields = {
    "id": filter_fields.message_id(gettext_lazy("A message's or a delivery's id")),
    "key": FilterField(gettext_lazy("Idempotency key")),
    "biz": filter_fields.BIZ,
    "event_type": EVENT_TYPE,
    "status": FilterField(
        gettext_lazy("Status"),
        gettext_lazy("Of any of its deliveries"),
        "choice",
        ((ACCEPTED, BizMsg.State.ACCEPTED.label), *_STATUS.choices),
        read=_read_status,
    ),
    "subscription": SUBSCRIPTION,
    "channel": FilterField(gettext_lazy("Channel"), gettext_lazy("Exact")),
    "since": filter_fields.SINCE,
    "until": filter_fields.UNTIL,
    "text": FilterField(
        gettext_lazy("Text"),
        gettext_lazy(
            "A part of the payload or of an answer, upper and lower case as it is; together with a "
            "system, a subscription or a time"
        ),
        personal=True,
    ),
}


# -- the two stores ------------------------------------------------------------------------------
def _naming(store: Store) -> list[Index]:
    """The messages that an id or a key names: an id may be a delivery's."""

    def of_id(values: Values) -> set[int]:
        rows = store.deliveries.filter(id=values["id"])
        return {values["id"], *rows.values_list("msg_id", flat=True)}

    def of_key(values: Values) -> set[int]:
        return set(_by_key(store, values["key"]))

    def of_both(values: Values) -> set[int]:
        return of_id(values) & of_key(values)

    def index(fields: tuple[str, ...], ids: Callable[[Values], set[int]]) -> Index:
        return Index(fields, lambda _source, values: read_ids(ids(values), values))

    return [index(("id", "key"), of_both), index(("id",), of_id), index(("key",), of_key)]


def _by_key(store: Store, key: str) -> Iterator[int]:
    if store.cold:
        yield from store.messages.filter(key=key).values_list("id", flat=True)
        return
    # The index begins with the bucket, which follows from business system and key.
    systems = list(Biz.objects.order_by("id").values_list("id", flat=True))
    for some in chunks(systems, _SYSTEMS):
        buckets = Q()
        for biz_id in some:
            buckets |= Q(bucket=id_numbers.bucket(biz_id, key), biz_id=biz_id, key=key)
        yield from IdempotencyKey.objects.filter(buckets).values_list("id", flat=True)


def _accepted(source: Source, values: Values) -> Reader | None:
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
    """Messages of the system whose subscription it is."""
    owner = BizReceive.objects.filter(id=values["subscription"]).values_list("biz_id", flat=True)
    rows = sql.of_one(source.rows(), "biz_id", values.get("biz", owner.first() or 0))
    return read_parts([rows.order_by("-biz_id", "-id")], values, "id")


def _archived_deliveries(field: str, column: str) -> Index:
    """Indexes of archived deliveries go on with the message's id."""

    def open(_source: Source, values: Values) -> Reader:
        value = values[field] if field == "subscription" else STATUSES.get(values[field])
        if value is None:  # an archived message is not waiting to be split
            return read_ids((), values)
        rows = stores.cold().deliveries.filter(**{column: value}).order_by("-msg_id").distinct()
        return read_parts([rows], values, "msg_id")

    return Index((field,), open)


def _source(store: Store) -> Source:
    def with_delivery(values: Values, ids: Sequence[int]) -> set[int]:
        status = values.get("status")
        if status == ACCEPTED and "subscription" not in values:
            return set(ids)
        rows = store.deliveries_of(ids)
        if "subscription" in values:
            rows = rows.filter(biz_receive_id=values["subscription"])
        if status in STATUSES:
            rows = rows.filter(status=STATUSES[status])
        return set(rows.order_by().values_list("msg_id", flat=True))

    def with_text(values: Values, ids: Sequence[int]) -> set[int]:
        in_payload = set(_with_payload(store, ids, values["text"]))
        others = [pk for pk in ids if pk not in in_payload]
        return in_payload | _with_answer(store, others, values["text"])

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
            Index(("status",), _accepted),
            Index(("status",), _in_few_deliveries, decides=()),
            Index(("subscription",), _of_owner, decides=("biz",)),
        ]
    )
    return Source(
        rows=lambda: store.messages,
        lines=partial(lines, store),
        reading=partial(reading, store),
        indexes=[
            *_naming(store),
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
        checks=[Check(("subscription", "status"), with_delivery), Check(("text",), with_text)],
    )


def _with_payload(store: Store, message_ids: Sequence[int], text: str) -> Iterator[int]:
    """Bytes are compared. JSON may write letters that are not ASCII as \\u escapes, so the text is
    looked for in each way that it can be written."""
    connection = connections[store.using]
    mysql = connection.vendor == "mysql"
    needles = {text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
    holds = "LOCATE(%s, payload) > 0" if mysql else "INSTR(payload, %s) > 0"
    places = ", ".join(["%s"] * len(message_ids))
    table = connection.ops.quote_name(store.messages.model._meta.db_table)
    statement = (
        f"SELECT id FROM {table} WHERE id IN ({places})"  # noqa: S608
        f" AND ({' OR '.join([holds] * len(needles))})"
    )
    # MySQL compares a text with the column's bytes as UTF-8; SQLite only bytes with bytes.
    parameters = [needle if mysql else needle.encode() for needle in sorted(needles)]
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


# -- the search box ------------------------------------------------------------------------------
def _readings(query: str, _personal: bool) -> Iterator[Values]:
    """A message's or a delivery's id, an idempotency key or an exact event type."""
    yield from exact_id(query)
    yield {"key": query}
    yield {"event_type": query}


def _delivering_to(url: str) -> list[Hit]:
    """Subscriptions that deliver to exactly this URL. Not those that begin with it: an address may
    hold a secret, which nobody should find out letter by letter."""
    if not url.startswith(("http://", "https://")):
        return []
    rows = BizReceive.objects.filter(receive__url=url).select_related("biz", "receive")
    return [
        Hit(
            id=str(row.pk),
            title=_("Messages for %s") % row.receive,
            state=str(row.get_status_display()),
            at=row.created_at,
            biz=str(row.biz),
            link=f"{reverse('console:find', args=['notify'])}?subscription={row.pk}",
        )
        for row in rows.order_by("-id")[:_MAX_SUBSCRIPTIONS]
    ]


def _check(values: Values) -> None:
    narrowing = ("biz", "subscription", "since", "until", "id", "key")
    if "text" in values and not any(name in values for name in narrowing):
        raise InvalidInput(_("narrow it by a system, a subscription or a time"), "text")


def archive_warning() -> str:
    """A sentence when the archive cannot be read."""
    store = stores.cold()
    try:
        with reading(store):
            store.messages.order_by().exists()
    except Unavailable as error:
        return str(error)
    return ""


MESSAGES = MessageStore(
    fields=FIELDS,
    # The hot store counts: a killed archiver may have left a copy of a hot message in the archive.
    sources=lambda _values: [_source(stores.hot()), _source(stores.cold())],
    readings=_readings,
    other_lines=_delivering_to,
    check=_check,
    page=page,
    file=file,
    searched_text_label=gettext_lazy("payloads and answers"),
    search_warning=archive_warning,
)
