"""Views that try a policy before it is saved: a mapped sample, a dry run, the fields that a mapping
can name.

Sample and dry run read the newest rows of the source. Nothing is stored and nothing is sent.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import msgspec
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _, gettext_lazy, pgettext_lazy

from crmsync import directory, trials
from crmsync.adapters.base import CRMAdapter, Stored
from crmsync.adapters.records import is_same_value
from crmsync.admin.setup import probes
from crmsync.models import Crm, Policy, Source
from crmsync.policies import mapping
from crmsync.poller.reading.increment import Increment
from crmsync.poller.reading.source import source_from_row
from crmsync.poller.requests import make_requests
from msgplatform.core import personal
from msgplatform.core.data import chunks
from msgplatform.core.errors import Permanent, PlatformError
from msgplatform.doors.admin import ModelAdmin, audit, row_id

_SAMPLE, _DRY_RUN = 5, 100
# Rows that are read when a policy carries only those of a system or of some APPKEYs.
_MAX_SEARCH = 1_000

Fate = Literal["create", "change", "delete", "same", "refused"]


class Mapped(msgspec.Struct, frozen=True):
    """A row with its mapped fields. With a `problem`, `field` is the field at fault."""

    key: str
    time: str
    deleted: bool
    fields: dict[str, Any]
    problem: str = ""
    field: str = ""


class Outcome(msgspec.Struct, frozen=True):
    """The effect on a row. `changes` are (field, the CRM's value, the new value)."""

    row: Mapped
    fate: Fate
    remote_id: str = ""
    changes: Sequence[tuple[str, Any, Any]] = ()


# The words and the tone for each fate of a row; fates that need a look come first.
FATES: dict[Fate, tuple[Any, str]] = {
    "refused": (gettext_lazy("refused by the mapping"), "bad"),
    "change": (pgettext_lazy("would be", "changed"), "warn"),
    "create": (pgettext_lazy("would be", "created"), "good"),
    "delete": (pgettext_lazy("would be", "deleted"), "warn"),
    "same": (gettext_lazy("unchanged"), "plain"),
}


def sample_view(model_admin: ModelAdmin, request: HttpRequest, pk: int | None) -> HttpResponse:
    """The newest rows, mapped by the form's mapping."""
    form = probes.posted_form(model_admin, request, pk)
    if isinstance(form, HttpResponse):
        return form
    clear = _sees(request, "policy_sample_shown", form.instance)
    try:
        policy = directory.check_mapping(form.instance)
        rows = trials.ask(lambda: _map_rows(policy, _SAMPLE))
    except PlatformError as error:
        return probes.piece(request, "answer.html", tone="bad", text=trials.describe(error))
    return probes.piece(
        request, "sample.html", rows=rows, clear=clear,
        lines=[_line(name, rows, clear) for name in mapping.parse(policy.mapping).fields],
    )  # fmt: skip


def dry_run_view(model_admin: ModelAdmin, request: HttpRequest, pk: int | None) -> HttpResponse:
    """The effect of a run on the newest rows, compared with the records in the CRM."""
    form = probes.posted_form(model_admin, request, pk)
    if isinstance(form, HttpResponse):
        return form
    clear = _sees(request, "policy_dry_run", form.instance)
    try:
        policy = directory.check_mapping(form.instance)
        outcomes = trials.ask_crm(policy.crm, partial(_dry_run, policy))
    except PlatformError as error:
        return probes.piece(request, "answer.html", tone="bad", text=trials.describe(error))
    # Count all fates, also those that do not occur.
    counts = Counter(outcome.fate for outcome in outcomes)
    order = list(FATES)
    outcomes.sort(key=lambda outcome: order.index(outcome.fate))
    return probes.piece(
        request, "dry_run.html", clear=clear,
        counts=[(words, tone, counts[fate]) for fate, (words, tone) in FATES.items()],
        outcomes=[_describe_outcome(outcome, clear) for outcome in outcomes],
    )  # fmt: skip


def fields_view(model_admin: ModelAdmin, request: HttpRequest, pk: int | None) -> HttpResponse:
    """The columns of the chosen source, and the fields of the chosen CRM."""
    if not (model_admin.has_add_permission(request) or model_admin.has_change_permission(request)):
        raise PermissionDenied
    row = Policy.objects.select_related("source", "crm").filter(pk=pk).first() if pk else None
    # A saved policy keeps its source and CRM; a new one has those that are chosen.
    source, crm = (row.source, row.crm) if row else (
        _read_choice(Source, request, "source"), _read_choice(Crm, request, "crm")
    )  # fmt: skip
    fields, problem = None, ""
    if crm:
        try:
            fields = trials.ask_crm(crm, _fields)
        except PlatformError as error:
            problem = trials.describe(error)
    return probes.piece(
        request, "mapping_help.html", source=source, crm=crm, fields=fields, problem=problem,
        unknown=bool(crm) and fields is None and not problem,
    )  # fmt: skip


def _fields(adapter: CRMAdapter) -> list[Any] | None:
    """The CRM's fields; those that must be filled in come first, those that cannot be written
    last."""
    fields = adapter.fields()
    if fields is None:
        return None
    return sorted(fields.values(), key=lambda f: (not f.writable, not f.required, f.name.lower()))


def _read_choice(model: Any, request: HttpRequest, name: str) -> Any:
    number = row_id(request.POST.get(name))
    return None if number is None else model.objects.filter(pk=number).first()


def _sees(request: HttpRequest, action: str, policy: Policy) -> bool:
    """True if personal data is shown in clear. The audit log gets an entry before."""
    clear = bool(request.user.has_perm(personal.PERMISSION))
    audit(request, action, str(policy), personal_data=clear)
    return clear


def _line(name: str, rows: list[Mapped], clear: bool) -> dict[str, Any]:
    """One field of the CRM, with a cell for each row of the sample."""
    cells: list[dict[str, Any]] = []
    for row in rows:
        if row.problem and row.field == name:
            cells.append({"problem": row.problem})
        # A deletion, or a row that another line of the mapping refuses, sends no fields.
        elif row.problem or row.deleted:
            cells.append({"nothing": "–"})
        elif name not in row.fields:
            cells.append({"nothing": _("not sent")})
        else:
            cells.append({"value": _text(row.fields[name], clear)})
    return {"name": name, "cells": cells}


def _describe_outcome(outcome: Outcome, clear: bool) -> dict[str, Any]:
    words, tone = FATES[outcome.fate]
    row = outcome.row
    changes = [(n, _text(old, clear), _text(new, clear)) for n, old, new in outcome.changes]
    # For an existing record show only the differences.
    is_new = outcome.fate == "create"
    return {
        "row": row, "words": words, "tone": tone, "remote_id": outcome.remote_id,
        "changes": changes,
        "fields": [(n, _text(v, clear)) for n, v in row.fields.items()] if is_new else [],
    }  # fmt: skip


def _text(value: Any, clear: bool) -> str:
    """A value for people: “empty” for none, and text without quotation marks."""
    if value is None or value == "":
        return _("empty")
    return str(value if clear else personal.mask_value(value))


def _dry_run(policy: Policy, adapter: CRMAdapter) -> list[Outcome]:
    """The effect of a run on the newest rows. Raises Permanent when the CRM does not take the
    fields of the mapping, what asking the CRM raises, and what reading the source raises."""
    # Check the CRM first: with wrong credentials or fields every row fails for the same reason.
    result = adapter.check(mapping.parse(policy.mapping).fields)
    if not result.is_usable:
        raise Permanent(result.message)
    rows = _map_rows(policy, _DRY_RUN)
    crm_records: dict[str, Stored] = {}
    for keys in chunks([row.key for row in rows if not row.problem], adapter.batch_size):
        crm_records.update(adapter.read(keys))
    return [_outcome(row, crm_records.get(row.key)) for row in rows]


def _outcome(row: Mapped, crm_record: Stored | None) -> Outcome:
    if row.problem:
        return Outcome(row, "refused")
    # The CRM has no live record: create one, unless the row is deleted too.
    if crm_record is None or crm_record.deleted:
        return Outcome(row, "same" if row.deleted else "create")
    if row.deleted:
        return Outcome(row, "delete", crm_record.remote_id)
    changes = tuple(
        (name, crm_record.fields.get(name), value)
        for name, value in row.fields.items()
        if not is_same_value(value, crm_record.fields.get(name))
    )
    return Outcome(row, "change" if changes else "same", crm_record.remote_id, changes)


def _map_rows(policy: Policy, limit: int) -> list[Mapped]:
    # Read more rows than `limit`: rows of other systems and pages are left out below.
    is_chosen = policy.biz_id is not None or policy.appkeys
    increment = Increment(source_from_row(policy.source))
    rows = increment.newest(_MAX_SEARCH if is_chosen else limit)
    # A request has no time: take the row's time, unless the row's key is too long and was cut.
    times = {str(row.key): row.time for row in rows}
    row_requests = [request for request in make_requests(policy, rows, 0) if not request.is_outside]
    return [
        Mapped(
            item.request.key, times.get(item.key, ""), item.request.deleted,
            dict(item.request.fields), str(item.problem or ""),
            item.problem.field if item.problem else "",
        )
        for item in row_requests[:limit]
    ]  # fmt: skip
