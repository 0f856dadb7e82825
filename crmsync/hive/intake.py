"""Take leads in: stored durably before the answer, and once however often a request is repeated.

The REST API and the landing page end here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from django.utils.translation import gettext as _

from crmsync import lead_fields
from crmsync.directory import Page
from crmsync.lead_fields import LeadField
from crmsync.models import Lead, LeadIdempotency
from msgplatform.core.data import sql
from msgplatform.core.errors import InvalidInput
from msgplatform.core.intake import idempotency
from msgplatform.core.intake.group_commit import GroupCommit
from msgplatform.core.intake.idempotency import Item
from msgplatform.core.intake.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class NewLead:
    """A lead whose values are checked."""

    biz: int
    appkey: str
    uid: str = ""
    name: str = ""
    phone: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    key: str | None = None

    def content(self) -> bytes:
        """What has to be equal when a key is repeated."""
        # In an order that does not change: stored keys are compared with it for days.
        parts = (self.appkey, self.uid, self.name, self.phone, self.extra)
        return json.dumps(parts, sort_keys=True).encode()

    def item(self) -> Item[NewLead]:
        """The lead as `idempotency` stores it: once for each key of its system."""
        return idempotency.item(self, self.biz, self.key, self.content())


def checked(
    page: Page, columns: Mapping[str, Any], extra: Mapping[str, Any], uid: str, key: str | None
) -> NewLead:
    """Make a lead of what a caller sent, with a key that is checked; None counts as not given.

    Raises InvalidInput naming the field.
    """
    check_known(page, columns, extra)
    values = {
        each.name: lead_fields.clean(each, {**extra, **columns}.get(each.name))
        for each in page.fields
    }
    return new_lead(page, values, lead_fields.clean_text(uid, lead_fields.MAX_UID, "uid"), key)


def check_known(page: Page, columns: Mapping[str, Any], extra: Mapping[str, Any]) -> None:
    """Raises InvalidInput for a field that the landing page does not have."""
    has = {each.name: each.path for each in page.fields}
    given = {name: name for name, value in columns.items() if value not in (None, "")}
    # Unlike a column, an extra field counts when it is empty too: its name may be mistyped.
    given |= {name: f"extra.{name}" for name in extra}
    for name, path in given.items():
        if has.get(name) != path:
            known = ", ".join(has.values())
            raise InvalidInput(_("This landing page has no such field. It has: %s.") % known, path)


def new_lead(page: Page, values: Mapping[str, Any], uid: str, key: str | None) -> NewLead:
    """Make a lead of clean values, by the fields' names."""
    return _of_values(page.biz_id, page.appkey, values, uid, key)


def without_page(
    biz: int,
    appkey: str,
    columns: Mapping[str, Any],
    extra: Mapping[str, Any],
    uid: str,
    key: str,
) -> NewLead:
    """The lead that `checked` makes where the landing page has just the fields that are given.

    Raises InvalidInput naming the field.
    """
    given = {**extra, **columns}
    values = {
        name: lead_fields.clean(LeadField(name, required=False), value)
        for name, value in given.items()
    }
    uid = lead_fields.clean_text(uid, lead_fields.MAX_UID, "uid")
    return _of_values(biz, appkey, values, uid, key)


def _of_values(
    biz: int, appkey: str, values: Mapping[str, Any], uid: str, key: str | None
) -> NewLead:
    extra = {name: value for name, value in values.items() if value != ""}
    columns = {name: extra.pop(name, "") for name in lead_fields.COLUMNS}
    return NewLead(biz, appkey, uid, extra=extra, key=key, **columns)


def of_public(lead: NewLead, key: str) -> NewLead:
    """The lead of a form or script of the public, with its idempotency key: kept apart from the
    keys of the business system, and made of the content too, so that nobody who guesses a key can
    use it up for another visitor."""
    # Hashed to a fixed length, since keys are stored and have a limit.
    text = "\n".join((lead.appkey, key, lead.content().decode()))
    return replace(lead, key=f"public:{hashlib.sha256(text.encode()).hexdigest()}")


def add(lead: NewLead) -> Verdict:
    """Store one lead, in one transaction with others that arrive in this process at that moment.

    Raises Unavailable (nothing happened) or OutcomeUnknown (repeat with the key).
    """
    return _committer().submit(lead.item())


def add_many(leads: Sequence[NewLead]) -> list[Verdict]:
    """Store leads in one transaction; the verdicts come in the same order.

    Must not run inside a transaction of the caller. Raises OperationalError when the database is
    unavailable.
    """
    return _store([lead.item() for lead in leads])


@lru_cache(maxsize=1)
def _committer() -> GroupCommit[Item[NewLead], Verdict]:
    # One for each process: requests of all its threads share a transaction.
    return GroupCommit(_store, max_items=500)


def _store(items: Sequence[Item[NewLead]]) -> list[Verdict]:
    return idempotency.store(items, LeadIdempotency, _insert)


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
