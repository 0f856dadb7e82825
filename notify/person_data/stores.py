"""Data that Notify holds of a person: payloads with their attempts, hot and archived."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from msgplatform.core.data import chunks, claims, sql, transactions
from msgplatform.core.errors import Undecryptable
from msgplatform.core.person.identity import Person
from msgplatform.core.person.stores import (
    SLICE,
    PersonStore,
    Row,
    Slice,
    TextTable,
    nothing_to_do,
    text_store,
)
from msgplatform.core.personal import MARK
from msgplatform.core.secrets import encryption
from msgplatform.models import FailureGroup
from notify import personal_fields
from notify.archive.due import bounded_chunks
from notify.archive.stores import Store, cold, hot
from notify.maker import ending
from notify.models import BizMsg, BizReceive, ColdBizMsg, EventType, IdempotencyKey, ReceiveMsg
from notify.orders import are_results_late
from notify.person_data import payloads

_CHUNK = 100  # messages read at a time, and at most erased in one transaction
_ANSWER_COLUMNS = ("response_headers", "response_body", "detail")
_Status = ReceiveMsg.Status
Pointers = Mapping[str, Mapping[int, Sequence[str]]]


def _find(store: Store, person: Person, cursor: str) -> Slice:
    rows = store.messages.order_by("id").values(
        "id", "biz_id", "event_type", "payload", "created_at"
    )
    pointers = _pointers()
    person_rows = []
    for _chunk in range(SLICE // _CHUNK):
        page = list(rows.filter(id__gt=int(cursor or 0))[:_CHUNK])
        person_rows += [row for row in page if _erase_payload(row, pointers, person) is not None]
        cursor = str(page[-1]["id"]) if len(page) == _CHUNK else ""
        if not cursor:
            break
    open_ids = set() if store.cold else _open_ids(person_rows)
    types_of_several = payloads.types_of_several()
    rows_of_slice = []
    for row in person_rows:
        delivery_ids = store.deliveries_of([row["id"]]).values_list("id", flat=True)
        attempts = store.attempts_of(list(delivery_ids)).order_by("id")
        own_pointers = payloads.pointers_of(pointers, row["event_type"], row["biz_id"])
        payload = payloads.mask_others(
            encryption.unseal(bytes(row["payload"])), own_pointers, person, row["biz_id"],
            row["event_type"] in types_of_several,
        )  # fmt: skip
        data = {
            "id": str(row["id"]), "biz_id": row["biz_id"], "event_type": row["event_type"],
            "created_at": row["created_at"],
            "payload": payload.decode(errors="replace"),
            "attempts": list(attempts.values("at", "http_status", *_ANSWER_COLUMNS)),
        }  # fmt: skip
        rows_of_slice.append(Row(str(row["id"]), data, row["id"] in open_ids))
    return Slice(rows_of_slice, cursor)


def _pointers() -> Pointers:
    """Event type → id of the business system (0: all systems) → pointers."""
    pointers: dict[str, dict[int, Sequence[str]]] = {
        name: {0: own_pointers} for name, own_pointers in personal_fields.own.items()
    }
    rows = EventType.objects.exclude(personal_fields=None)
    for name, owner, field_pointers in rows.values_list("name", "owner", "personal_fields"):
        if field_pointers:
            of_type = pointers.setdefault(name, {})
            of_type[owner] = [*of_type.get(owner, ()), *field_pointers]
    return pointers


def _erase_payload(row: Mapping[str, Any], pointers: Pointers, person: Person) -> bytes | None:
    """The payload without the person's data, in its stored form. None for a payload without such
    data, or that no key decrypts."""
    stored_payload = bytes(row["payload"])
    is_sealed = encryption.is_sealed(stored_payload)
    try:
        clear = encryption.unseal(stored_payload)
    except Undecryptable:
        return None
    # A quick search, so that the JSON of most messages is not parsed. With a backslash JSON may
    # write an id in another spelling.
    if not person.may_be_in(clear.decode(errors="replace")) and not any(
        uid.encode() in clear or b"\\" in clear for biz, uid in person.users if biz == row["biz_id"]
    ):
        return None
    own_pointers = payloads.pointers_of(pointers, row["event_type"], row["biz_id"])
    new_payload = payloads.erase_person(clear, own_pointers, person, row["biz_id"])
    return encryption.seal(new_payload) if new_payload is not None and is_sealed else new_payload


def _open_ids(page: Iterable[Mapping[str, Any]]) -> set[int]:
    """The ids of messages that are not split, or have an open delivery. A message about several
    people is open only while a delivery is queued; while it waits it is erased, and then delivered
    without the person."""
    types_of_several = payloads.types_of_several()
    shared_ids = [row["id"] for row in page if row["event_type"] in types_of_several]
    own_ids = [row["id"] for row in page if row["event_type"] not in types_of_several]
    rows = BizMsg.objects.filter(id__in=own_ids, state=BizMsg.State.ACCEPTED)
    open_ids = set(rows.values_list("id", flat=True))
    for message_ids, statuses in ((own_ids, ReceiveMsg.OPEN), (shared_ids, (_Status.QUEUED,))):
        deliveries = ReceiveMsg.objects.filter(msg_id__in=message_ids, status__in=statuses)
        open_ids |= set(deliveries.order_by().values_list("msg_id", flat=True))
    return open_ids


def _erase(store: Store, person: Person, rows: Sequence[Row]) -> int:
    pointers, count = _pointers(), 0
    for page in chunks([int(row.key) for row in rows], _CHUNK):
        for chunk in bounded_chunks(page, store):  # the messages are locked for its deliveries
            count += transactions.retrying(
                partial(_erase_messages, store, person, pointers, chunk), store.using
            )
    return count


def _erase_messages(
    store: Store, person: Person, pointers: Pointers, message_ids: Sequence[int]
) -> int:
    with transaction.atomic(using=store.using):
        # The archiver locks these rows too. Messages that it has moved meanwhile are not found.
        columns = ("id", "biz_id", "event_type", "payload")
        locked_messages = (
            store.messages.select_for_update().filter(id__in=message_ids).order_by("id")
        )
        page = list(locked_messages.values(*columns))
        if not store.cold:  # a delivery may have been resent meanwhile
            open_ids = _open_ids(page)
            page = [row for row in page if row["id"] not in open_ids]
        page_ids = [row["id"] for row in page]
        deliveries = store.deliveries_of(page_ids)
        # Erase all answers of consumers, and the parts of the platform's texts that name the person
        errors = dict(deliveries.values_list("id", "error"))
        for chunk in chunks(sorted(errors), 500):
            attempts = store.attempts_of(chunk)
            for column in _ANSWER_COLUMNS:
                attempts.exclude(**{f"{column}__in": ["", MARK]}).update(**{column: MARK})
            groups = FailureGroup.objects.filter(flow="notify", sample__in=chunk)
            groups.exclude(said__in=["", MARK]).update(said=MARK)
        for pk, error in errors.items():
            if person.is_in(error):
                deliveries.filter(id=pk).update(error=person.erased(error))
        # A duplicate of a request whose key named the person counts as new after this.
        key_rows: QuerySet[Any] = (
            store.messages.exclude(key="") if store.cold else IdempotencyKey.objects.all()
        )
        keys = dict(key_rows.filter(id__in=page_ids).values_list("id", "key"))
        for pk, key in keys.items():
            if person.is_in(key):
                key_rows.filter(id=pk).update(key=f"{MARK}-{pk}")
        count = 0
        for row in page:
            new_payload = _erase_payload(row, pointers, person)
            if new_payload is not None:
                count += store.messages.filter(id=row["id"]).update(payload=new_payload)
    return count


def _end(_person: Person, rows: Sequence[Row]) -> int:
    """Skip waiting deliveries. A delivery that a program has ends by itself, or waits after its
    lease. A message about several people is erased when no program has it."""
    count, types_of_several = 0, payloads.types_of_several()
    # Deliveries whose lease is over wait again: no maker does that for a listener that is gone, or
    # while OUTBOUND is off. While results are late such a delivery may have arrived.
    has_late_results = are_results_late()
    expired_rows = ReceiveMsg.objects.filter(status=_Status.QUEUED, next_at__lte=Now())
    values = {"status": _Status.PENDING, "claimed_by": "", "updated_at": Now()}
    for chunk in chunks([int(row.key) for row in rows], _CHUNK):
        of_chunk = expired_rows.filter(msg_id__in=chunk).order_by("id")
        expired_ids = [] if has_late_results else list(of_chunk.values_list("id", flat=True))
        for ids in chunks(expired_ids, claims.CHUNK):
            rows_of_ids = expired_rows.filter(id__in=ids)
            transactions.retrying(partial(claims.update_by_key, rows_of_ids, values))
        messages = BizMsg.objects.filter(id__in=chunk).exclude(event_type__in=types_of_several)
        deliveries = ReceiveMsg.objects.filter(
            msg_id__in=list(messages.values_list("id", flat=True)),
            status__in=(_Status.PENDING, _Status.HELD),
        )
        delivery_ids = list(deliveries.order_by("id").values_list("id", flat=True))
        count += sum(
            transactions.retrying(partial(_skip, ids)) for ids in chunks(delivery_ids, 500)
        )
    return count


@transaction.atomic
def _skip(delivery_ids: Sequence[int]) -> int:
    statuses = (_Status.PENDING, _Status.HELD)
    latest = sql.read_time("9999-12-31 00:00:00")  # later than all times of these deliveries
    return len(ending.end(delivery_ids, statuses, latest, _Status.SKIPPED, ending.ERASED))


# Before the split the channel selects recipients.
_channels = TextTable(BizMsg, ("channel",), open_condition=Q(state=BizMsg.State.ACCEPTED))


def stores() -> Sequence[PersonStore]:
    """Notify's stores. Hot tables come before the archive, so that a moving message is found."""
    parts = [("notify.messages", _("messages"), hot()),
             ("notify.archive", _("archived messages"), cold())]  # fmt: skip
    answers, archived_answers = _("answers of consumers"), _("archived answers of consumers")
    return (
        *(
            PersonStore(
                name, title, partial(_find, store), partial(_erase, store),
                end=nothing_to_do if store.cold else _end,
            )
            for name, title, store in parts
        ),
        text_store("notify.keys", _("idempotency keys"), IdempotencyKey, ("key",),
                   unique_column="key"),
        text_store("notify.archived_keys", _("archived idempotency keys"), ColdBizMsg,
                   ("key", "channel")),
        PersonStore("notify.channels", _("channels"), _channels.find, _channels.erase),
        text_store("notify.filters", _("filters of subscriptions"), BizReceive, ("filter",)),
        text_store("notify.examples", _("examples of event types"), EventType,
                   ("example", "description")),
        # Answers of consumers may name the person beside other people's messages.
        text_store("notify.answers", answers, hot().attempts.model, _ANSWER_COLUMNS),
        text_store("notify.errors", answers, hot().deliveries.model, ("error",)),
        text_store("notify.archived_answers", archived_answers, cold().attempts.model,
                   _ANSWER_COLUMNS),
        text_store("notify.archived_errors", archived_answers, cold().deliveries.model,
                   ("error",)),
    )  # fmt: skip
