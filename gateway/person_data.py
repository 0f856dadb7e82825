"""A person's data in SMS: messages in Redis, their copies there, and the archive."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from django.db import transaction
from django.db.models import Model, Q
from django.utils.translation import gettext_lazy as _

from gateway.connections import sms_redis
from gateway.lifecycle import archived_store, keys, scripts, store
from gateway.lifecycle.archived_store import Batch
from gateway.lifecycle.messages import Finished, Mo
from gateway.models import SgipMo, SgipMt, SgipMtPart, SgipReport, SgipUserRpt
from msgplatform.core.data import chunks, transactions
from msgplatform.core.person import stores as person_stores
from msgplatform.core.person.identity import Person
from msgplatform.core.person.stores import PersonStore, Row, Slice, nothing_to_do, text_store
from msgplatform.core.personal import MARK

_CHUNK = 500
_BATCHES = 20  # members of copies that one slice reads
_MT = f"{keys.PREFIX}mt:"


# -- on their way, in Redis ----------------------------------------------------------------------
def _find_open(person: Person, cursor: str) -> Slice:
    # Copies have a store of their own. To read millions of ids would hold up the gateways.
    part = person_stores.find_keys(
        sms_redis(), person, cursor,
        lambda key: key == keys.ARCHIVED or keys.has_only_ids(key), lambda _key: True,
    )  # fmt: skip
    ids = [row.key.removeprefix(_MT) for row in part.rows if row.key.startswith(_MT)]
    messages = {f"{_MT}{message.id}": _export(person, message) for message in store.read(ids)}
    rows = [
        msgspec.structs.replace(row, data={**row.data, "message": messages.get(row.key)})
        for row in part.rows
    ]
    return Slice(rows, part.cursor)


def _end_open(person: Person, rows: Sequence[Row]) -> int:
    """End messages to the person. Messages to others that name the person are sent."""
    ids = [row.key.removeprefix(_MT) for row in rows if row.key.startswith(_MT)]
    count = 0
    for page in chunks(ids, _CHUNK):
        own_ids = [m.id for m in store.read(page) if m.mt.user_number in person.phone_spellings]
        count += int(scripts.run("dismiss", own_ids)) if own_ids else 0
    return count


# -- copies for a restore ------------------------------------------------------------------------
def _find_copies(person: Person, cursor: str) -> Slice:
    members, following = archived_store.page(cursor, _BATCHES)
    rows: list[Row] = []
    for member, time in members:
        batch = archived_store.unpack(member)
        erased_batch = _erased_batch(person, batch)
        pairs: list[tuple[Any, Any]] = [
            *zip(batch.messages, erased_batch.messages, strict=True),
            *zip(batch.mos, erased_batch.mos, strict=True),
        ]
        if copies := [_export(person, old) for old, changed in pairs if old != changed]:
            rows.append(Row(time, {"messages": copies}))
    return Slice(rows, following)


def _erase_copies(person: Person, rows: Sequence[Row]) -> int:
    count = 0
    for time in dict.fromkeys(row.key for row in rows):
        for member in archived_store.members_at(time):
            batch = archived_store.unpack(member)
            if (erased_batch := _erased_batch(person, batch)) != batch:
                new_member = archived_store.pack(erased_batch)
                count += int(scripts.run("rekeep", [member, new_member]))
    return count


def _export(person: Person, message: Finished | Mo) -> dict[str, Any]:
    """A message in an export; of somebody else's message only what names the person."""
    mt: Any = message.mt if isinstance(message, Finished) else message
    if mt.user_number in person.phone_spellings:
        return dict(msgspec.to_builtins(message))
    values = {"id": message.id, **msgspec.to_builtins(mt)}
    return {"id": message.id, **person.mentions(values)}


def _erased_batch(person: Person, batch: Batch) -> Batch:
    return Batch(
        [_erased_message(person, message) for message in batch.messages],
        [_erased_mo(person, mo) for mo in batch.mos],
    )


def _erased_message(person: Person, message: Finished) -> Finished:
    mt = message.mt
    is_theirs = mt.user_number in person.phone_spellings
    new_mt = msgspec.structs.replace(
        mt,
        user_number=MARK if is_theirs else mt.user_number,
        text=MARK if is_theirs else person.erased(mt.text),
        charge_number=person.erased(mt.charge_number),
        key=person.erased(mt.key),
        reference=person.erased(mt.reference),
    )
    events = {
        final: person.erased(event.decode()).encode() for final, event in message.announced.items()
    }
    return msgspec.structs.replace(message, mt=new_mt, announced=events)


def _erased_mo(person: Person, mo: Mo) -> Mo:
    is_theirs = mo.user_number in person.phone_spellings
    if not is_theirs and not person.is_in(mo.text):
        return mo
    return msgspec.structs.replace(
        mo,
        user_number=MARK if is_theirs else mo.user_number,
        text=MARK if is_theirs else person.erased(mo.text),
        content=b"",
    )


# -- the archive ---------------------------------------------------------------------------------
class _Table(msgspec.Struct, frozen=True):
    """A table whose rows of the person are found by number. `new_values` are written into them."""

    model: type[Model]
    columns: Sequence[str]
    new_values: Mapping[str, Any]
    condition: Q = msgspec.field(default_factory=Q)

    def find(self, person: Person, cursor: str) -> Slice:
        if not person.phones:
            return Slice(())
        rows = self.model._default_manager.filter(
            self.condition, user_number__in=person.phone_spellings
        )
        if cursor:
            rows = rows.filter(id__gt=int(cursor))
        page = list(rows.order_by("id").values("id", *self.columns)[:_CHUNK])
        return Slice([Row(str(row["id"]), row) for row in page],
                     str(page[-1]["id"]) if len(page) == _CHUNK else "")  # fmt: skip

    def erase(self, _person: Person, rows: Sequence[Row]) -> int:
        own_rows = self.model._default_manager.filter(id__in=[int(row.key) for row in rows])
        return transactions.retrying(lambda: own_rows.update(**self.new_values))


_SENT = _Table(
    SgipMt, ("biz_id", "account_id", "user_number", "charge_number", "text", "final",
             "idempotency_key", "reference", "accepted_at"), {},
)  # fmt: skip


def _erase_sent(person: Person, rows: Sequence[Row]) -> int:
    ids = [int(row.key) for row in rows]

    @transaction.atomic
    def erase_rows() -> int:
        # Lock the message's row first, as the pump and a late Report do, and change it last: its
        # number lets a killed program's work be found again.
        messages = list(SgipMt.objects.select_for_update().filter(id__in=ids).order_by("id"))
        for model in (SgipMtPart, SgipReport):
            rows_of_messages = model._default_manager.filter(mt_id__in=ids)
            rows_of_messages.exclude(user_number=MARK).update(user_number=MARK)
        for row in messages:
            row.user_number = row.text = MARK
            row.charge_number = MARK if row.charge_number else ""
            row.idempotency_key = person.erased(row.idempotency_key)
            row.reference = person.erased(row.reference)
        columns = ["user_number", "text", "charge_number", "idempotency_key", "reference"]
        SgipMt.objects.bulk_update(messages, columns)
        return len(messages)

    return transactions.retrying(erase_rows)


_RECEIVED = _Table(
    SgipMo, ("biz_id", "account_id", "user_number", "sp_number", "text", "received_at"),
    {"user_number": MARK, "text": MARK, "content": b""},
)  # fmt: skip
# Reports without a message. Other Reports are erased with their messages.
_REPORTS = _Table(
    SgipReport, ("user_number", "state", "error_code", "received_at"), {"user_number": MARK},
    Q(mt_id=0),
)  # fmt: skip
_CHANGES = _Table(
    SgipUserRpt, ("user_number", "sp_number", "user_condition", "received_at"),
    {"user_number": MARK},
)  # fmt: skip


def stores() -> Sequence[PersonStore]:
    """Redis first: once it holds nothing of the person, all of the messages' data was published and
    archived."""
    return (
        PersonStore("sms.open", _("messages on their way"), _find_open, nothing_to_do,
                    _end_open),
        PersonStore("sms.copies", _("copies of archived messages in Redis"), _find_copies,
                    _erase_copies),
        PersonStore("sms.sent", _("messages sent"), _SENT.find, _erase_sent),
        PersonStore("sms.received", _("messages received"), _RECEIVED.find, _RECEIVED.erase),
        PersonStore("sms.reports", _("Reports without a message"), _REPORTS.find, _REPORTS.erase),
        PersonStore("sms.users", _("changes of users"), _CHANGES.find, _CHANGES.erase),
        text_store("sms.mentions", _("messages received from others"), SgipMo, ("text",),
                   context_columns=("id", "received_at"), new_values={"content": b""}),
        text_store("sms.texts", _("messages sent to others"), SgipMt,
                   ("text", "reference", "idempotency_key", "error")),
    )  # fmt: skip
