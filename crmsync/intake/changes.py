"""Change and delete leads. A deleted lead stays as a row, so that every CRM learns of it."""

from collections.abc import Callable, Mapping
from typing import Any

from django.utils.translation import gettext as _

from crmsync import directory, lead_fields
from crmsync.intake import intake
from crmsync.models import LandingPage, Lead
from msgplatform.core.data import transactions
from msgplatform.core.errors import InvalidInput


def replace(
    biz: int, lead_id: int, columns: Mapping[str, Any], extra: Mapping[str, Any], uid: str
) -> Lead | None:
    """Replace everything but the APPKEY. None for a lead that does not exist or is deleted.

    Raises InvalidInput naming the field.
    """

    def new_values(row: Lead) -> dict[str, Any]:
        lead = intake.check_lead(_page(row), columns, extra, uid, None)
        return {"uid": lead.uid, "name": lead.name, "phone": lead.phone, "extra": lead.extra}

    return _change(biz, lead_id, new_values)


def update(
    biz: int,
    lead_id: int,
    columns: Mapping[str, Any],
    extra: Mapping[str, Any] | None,
    uid: str | None,
) -> Lead | None:
    """Change only these values. An extra field with None or '' is removed, and all of them when
    `extra` is None.

    Extra fields that the landing page no longer has stay, or are removed by None. Otherwise as
    `replace`.
    """

    def new_values(row: Lead) -> dict[str, Any]:
        page = _page(row)
        new_extra = dict.fromkeys(row.extra) if extra is None else extra
        # A field that the page no longer has cannot be checked, and can only be removed.
        page_names = {field.name for field in page.fields}
        known_names = page_names | set(lead_fields.COLUMNS)
        removed_names = {name for name, value in new_extra.items() if value is None} - known_names
        page_extra = {name: new_extra[name] for name in new_extra if name not in removed_names}
        intake.check_known(page, columns, page_extra)
        values = {**page_extra, **columns}
        clean = {
            field.name: lead_fields.clean(field, values[field.name])
            for field in page.fields
            if field.name in values
        }
        changes = {name: clean.pop(name) for name in lead_fields.COLUMNS if name in clean}
        # A column that the page no longer has can only be emptied.
        changes |= {name: "" for name in columns.keys() - page_names if getattr(row, name)}
        if uid is not None:
            changes["uid"] = lead_fields.clean_text(uid, lead_fields.MAX_UID, "uid")
        if clean or removed_names & row.extra.keys():
            all_extra = {**row.extra, **clean, **dict.fromkeys(removed_names, "")}
            changes["extra"] = {name: value for name, value in all_extra.items() if value != ""}
        return changes

    return _change(biz, lead_id, new_values)


def delete(biz: int, lead_id: int) -> bool:
    """Mark a lead as deleted, once. Returns True if the lead exists, deleted or not."""
    rows = Lead.objects.filter(biz_id=biz, pk=lead_id)
    if transactions.retrying(lambda: rows.filter(is_delete=False).update(is_delete=True)):
        return True
    return rows.exists()


@transactions.repeatable
def _change(biz: int, lead_id: int, new_values: Callable[[Lead], Mapping[str, Any]]) -> Lead | None:
    rows = Lead.objects.filter(biz_id=biz, pk=lead_id, is_delete=False)
    # Lock the row: two changes of `extra` at once must not lose one of them.
    row = rows.select_for_update().first()
    if row is None:
        return None
    if values := new_values(row):
        rows.update(**values)
    return rows.get()  # with UpdateTime and version, which the trigger has set


def _page(row: Lead) -> LandingPage:
    page = directory.page(row.appkey)
    if page is None:
        raise InvalidInput(_("The landing page of this lead is switched off."), "appkey")
    return page
