"""Find leads by what an index has: id, phone number, UID, APPKEY."""

from __future__ import annotations

from contextlib import suppress

from django.db.models import Q
from django.utils.translation import gettext as _

from crmsync import lead_fields
from crmsync.models import Lead
from msgplatform.api.filters import number
from msgplatform.core.data import ids
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows import Hit, Page, TimelineEntry


def search(query: str, limit: int) -> list[Hit]:
    """Newest first."""
    text = query.strip()
    if not text:
        return []
    conditions = [Q(uid=text), Q(appkey=text)]
    with suppress(InvalidInput):
        conditions.append(Q(phone=lead_fields.clean_phone(text)))
    with suppress(InvalidInput):
        conditions.append(Q(pk=number(text)))
    # A statement for each: an OR over several indexes ends in a pass over the table.
    found = {
        row.pk: row
        for condition in conditions
        for row in Lead.objects.filter(condition).select_related("biz").order_by("-id")[:limit]
    }
    newest = sorted(found.values(), key=lambda row: row.pk, reverse=True)
    return [_hit(row) for row in newest[:limit]]


def page(id: str) -> Page | None:
    try:
        row = Lead.objects.select_related("biz").filter(pk=number(id)).first()
    except InvalidInput:
        return None
    if row is None:
        return None
    facts = {
        _("system"): str(row.biz), "APPKEY": row.appkey, "UID": row.uid, _("name"): row.name,
        _("phone"): row.phone, _("version"): str(row.version),
    }  # fmt: skip
    body = "\n".join(f"{name}: {value}" for name, value in row.extra.items())
    story = [TimelineEntry(ids.datetime_of(row.pk), _("Stored"), "accepted")]
    if row.version > 1:
        title = _("Deleted") if row.is_delete else _("Changed")
        story.append(TimelineEntry(row.update_time, title, _state(row)))
    return Page(str(row.pk), str(row), {k: v for k, v in facts.items() if v}, body, story)


def _hit(row: Lead) -> Hit:
    title = " · ".join(filter(None, (row.name, row.phone, row.appkey)))
    return Hit(str(row.pk), title, _state(row), ids.datetime_of(row.pk), row.biz.name)


def _state(row: Lead) -> str:
    return "deleted" if row.is_delete else "accepted"
