"""Change and delete leads. A deleted lead stays as a row, so that every CRM learns of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.db import transaction
from django.utils.translation import gettext as _

from crmsync import directory, lead_fields
from crmsync.hive import intake
from crmsync.models import Lead
from msgplatform.core.data import transactions
from msgplatform.core.errors import InvalidInput


def replace(
    biz: int, lead_id: int, columns: Mapping[str, Any], extra: Mapping[str, Any], uid: str
) -> Lead | None:
    """Replace everything but the APPKEY. None when there is no such lead, or it is deleted.

    Raises InvalidInput naming the field.
    """

    def written(row: Lead) -> dict[str, Any]:
        lead = intake.checked(_page(row), columns, extra, uid, None)
        return {"uid": lead.uid, "name": lead.name, "phone": lead.phone, "extra": lead.extra}

    return _change(biz, lead_id, written)


def update(
    biz: int,
    lead_id: int,
    columns: Mapping[str, Any],
    extra: Mapping[str, Any] | None,
    uid: str | None,
) -> Lead | None:
    """Change only what is given; an extra field that is given as None or '' is taken away, and all
    of them when `extra` is None.

    Extra fields that the landing page no longer has stay, or are taken away by None. Otherwise as
    `replace`.
    """

    def written(row: Lead) -> dict[str, Any]:
        page = _page(row)
        given = dict.fromkeys(row.extra) if extra is None else extra
        # What the page does not ask for any more has no rule; it can only go, or is gone already.
        has = {each.name for each in page.fields} | set(lead_fields.COLUMNS)
        gone = {name for name, value in given.items() if value is None} - has
        asked = {name: value for name, value in given.items() if name not in gone}
        intake.check_known(page, columns, asked)
        values = {**asked, **columns}
        clean = {
            each.name: lead_fields.clean(each, values[each.name])
            for each in page.fields
            if each.name in values
        }
        changed = {name: clean.pop(name) for name in lead_fields.COLUMNS if name in clean}
        # As above: only nothing is taken for a column that the page has no more.
        asked_for = {each.name for each in page.fields}
        changed |= {name: "" for name in columns.keys() - asked_for if getattr(row, name)}
        if uid is not None:
            changed["uid"] = lead_fields.clean_text(uid, lead_fields.MAX_UID, "uid")
        if clean or gone & row.extra.keys():
            merged = {**row.extra, **clean, **dict.fromkeys(gone, "")}
            changed["extra"] = {name: value for name, value in merged.items() if value != ""}
        return changed

    return _change(biz, lead_id, written)


def delete(biz: int, lead_id: int) -> bool:
    """Mark a lead as deleted, once. Returns whether there is such a lead, deleted or not."""
    rows = Lead.objects.filter(biz_id=biz, pk=lead_id)
    if transactions.retrying(lambda: rows.filter(is_delete=False).update(is_delete=True)):
        return True
    return rows.exists()


def _change(biz: int, lead_id: int, written: Callable[[Lead], Mapping[str, Any]]) -> Lead | None:
    def once() -> Lead | None:
        with transaction.atomic():
            rows = Lead.objects.filter(biz_id=biz, pk=lead_id, is_delete=False)
            # Locked, so that two changes of `extra` at once do not lose one of them.
            row = rows.select_for_update().first()
            if row is None:
                return None
            if changed := written(row):
                rows.update(**changed)
            return rows.get()  # with UpdateTime and version, which the trigger has set

    return transactions.retrying(once)


def _page(row: Lead) -> directory.Page:
    page = directory.page(row.appkey)
    if page is None:
        raise InvalidInput(_("The landing page of this lead is switched off."), "appkey")
    return page
