"""Take leads in, for the REST API and the landing page: a lead is stored durably before the answer,
and once however often its request comes.

A lead that was accepted once stays accepted, even if its landing page has other fields or is
switched off since: a caller that got no answer and repeats the lead must not take it for lost.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from django.utils.translation import gettext as _

from crmsync import lead_fields
from crmsync.lead_fields import LeadField
from crmsync.models import LandingPage, Lead, LeadIdempotency
from msgplatform.core.data import sql
from msgplatform.core.errors import InvalidInput
from msgplatform.core.intake import idempotency
from msgplatform.core.intake.group_commit import Intake
from msgplatform.core.intake.idempotency import Item
from msgplatform.core.intake.verdicts import Verdict
from msgplatform.core.tracing import context


class NewLead(msgspec.Struct, frozen=True):
    """A lead whose values are checked."""

    biz: int
    appkey: str
    uid: str = ""
    name: str = ""
    phone: str = ""
    extra: Mapping[str, Any] = msgspec.field(default_factory=dict)
    key: str | None = None

    def content(self) -> bytes:
        """The content that has to be equal when a key comes twice."""
        # The order is fixed, because stored hashes are compared for days.
        parts = (self.appkey, self.uid, self.name, self.phone, self.extra)
        return json.dumps(parts, sort_keys=True).encode()

    def item(self) -> Item[NewLead]:
        """The lead as `idempotency` stores it: once for each key of its business system."""
        return idempotency.item(self, self.biz, self.key, self.content(), trace=context.begin())


class RefusedLead(msgspec.Struct, frozen=True):
    """A lead with an idempotency key that cannot be accepted now, and may have been before."""

    lead: NewLead
    error: InvalidInput


def check_lead(
    page: LandingPage,
    columns: Mapping[str, Any],
    extra: Mapping[str, Any],
    uid: str,
    key: str | None,
) -> NewLead:
    """Check a caller's values, except the key, and make a lead of them. None counts as missing.

    Raises InvalidInput naming the field.
    """
    check_known(page, columns, extra)
    values = {
        field.name: lead_fields.clean(field, {**extra, **columns}.get(field.name))
        for field in page.fields
    }
    return make_lead(page, values, lead_fields.clean_text(uid, lead_fields.MAX_UID, "uid"), key)


def check_known(page: LandingPage, columns: Mapping[str, Any], extra: Mapping[str, Any]) -> None:
    """Raises InvalidInput for a field that the landing page does not have."""
    page_paths = {field.name: field.path for field in page.fields}
    sent_paths = {name: name for name, value in columns.items() if value not in (None, "")}
    # An extra field counts even when it is empty: its name may be mistyped. Columns do not.
    sent_paths |= {name: f"extra.{name}" for name in extra}
    for name, path in sent_paths.items():
        if page_paths.get(name) != path:
            names = ", ".join(page_paths.values())
            raise InvalidInput(_("This landing page has no such field. It has: %s.") % names, path)


def make_lead(page: LandingPage, values: Mapping[str, Any], uid: str, key: str | None) -> NewLead:
    """Make a lead of clean values, by the fields' names."""
    extra = {name: value for name, value in values.items() if value != ""}
    columns = {name: extra.pop(name, "") for name in lead_fields.COLUMNS}
    return NewLead(page.biz_id, page.appkey, uid, extra=extra, key=key, **columns)


def check_lead_without_page(
    biz: int, appkey: str, columns: Mapping[str, Any], extra: Mapping[str, Any], uid: str, key: str
) -> NewLead:
    """The lead that `check_lead` makes for a landing page that has exactly these fields.

    Raises InvalidInput naming the field.
    """
    values = {
        name: lead_fields.clean(LeadField(name, required=False), value)
        for name, value in {**extra, **columns}.items()
    }
    uid = lead_fields.clean_text(uid, lead_fields.MAX_UID, "uid")
    return make_lead(LandingPage(biz_id=biz, appkey=appkey), values, uid, key)


def with_public_key(lead: NewLead, key: str) -> NewLead:
    """The lead with the idempotency key of a public form or script. It is kept apart from the keys
    of the business system, and made of the content too: a visitor who guesses a key cannot use it
    up for another."""
    # Hashed to a fixed length, since keys are stored and have a limit.
    text = "\n".join((lead.appkey, key, lead.content().decode()))
    return msgspec.structs.replace(lead, key=f"public:{hashlib.sha256(text.encode()).hexdigest()}")


def add(lead: NewLead | RefusedLead) -> Verdict:
    """Store one lead, in one transaction with others that arrive in this process at that moment.

    Raises Unavailable (nothing happened) or OutcomeUnknown (repeat with the key).
    """
    if isinstance(lead, RefusedLead):
        return _judge_refused([lead])[0]
    return _INTAKE.add(lead)


def add_many(leads: Sequence[NewLead | RefusedLead]) -> list[Verdict]:
    """Store leads in one transaction; the verdicts come in the same order.

    Must not run inside a transaction of the caller. Raises OperationalError when the database is
    unavailable.
    """
    of_refused = iter(_judge_refused([lead for lead in leads if isinstance(lead, RefusedLead)]))
    items = [lead.item() for lead in leads if isinstance(lead, NewLead)]
    of_new = iter(_store(items) if items else ())
    return [next(of_refused if isinstance(lead, RefusedLead) else of_new) for lead in leads]


def _judge_refused(leads: Sequence[RefusedLead]) -> list[Verdict]:
    """The verdicts of refused leads: duplicate or conflict for a known key, else rejected."""
    items = [refused_lead.lead.item() for refused_lead in leads]
    first_leads = idempotency.read_first_items(items, LeadIdempotency)
    verdicts = []
    for refused_lead, item in zip(leads, items, strict=True):
        if stored_lead := first_leads.get((item.biz, item.key)):
            lead_id, payload_hash = stored_lead
            verdicts.append(
                Verdict.duplicate_or_conflict(payload_hash == item.payload_hash, lead_id)
            )
        else:
            verdicts.append(Verdict.rejected(refused_lead.error))
    return verdicts


def _store(items: Sequence[Item[NewLead]]) -> list[Verdict]:
    return idempotency.store(items, LeadIdempotency, _insert, flow="lead")


def _insert(items: Sequence[Item[NewLead]], now: object) -> None:
    """Insert leads; the database sets UpdateTime, IsDelete and version."""
    sql.insert_or_keep(
        Lead._meta.db_table,
        ("id", "biz_id", "appkey", "uid", "name", "phone", "extra"),
        [
            (item.id, lead.biz, lead.appkey, lead.uid, lead.name, lead.phone,
             json.dumps(lead.extra, ensure_ascii=False))
            for item, lead in ((item, item.body) for item in items)
        ],
    )  # fmt: skip


_INTAKE = Intake(NewLead.item, _store)
