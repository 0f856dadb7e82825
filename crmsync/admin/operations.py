"""Operations: the requests of one round of reading as they are stored, and the CRM's answers.
And the exception log: calls that failed as a whole."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import formats, timezone
from django.utils.translation import gettext, gettext_lazy as _

from crmsync.admin.rows import CrmFilter, NamedRowsAdmin, PolicyFilter, timeline_link
from crmsync.messages.timeline import first_tries
from crmsync.models import ExceptionEntry, Item, Operation, Record
from msgplatform.core import personal
from msgplatform.doors.admin import AdminPage, IdTimeFilter, PickFilter, audit, cells, row_id

# With 900 records and several tries an operation may have thousands of items.
_ITEMS = 200  # that the page of an operation shows
TONES = {"ok": "good", "retry": "warn", "throttled": "plain", "unknown": "warn", "conflict": "warn"}


class RunFilter(PickFilter):
    """The filter is set by the page of a run: there are too many runs to choose from."""

    title = _("run")
    parameter_name, column, is_id = "run", "run_id", True

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        run_id = row_id(request.GET.get(self.parameter_name))
        return [(str(run_id), str(run_id))] if run_id is not None else []


@admin.register(Operation)
class OperationAdmin(NamedRowsAdmin):
    list_display = [
        "id_text", "policy", "records", "confirmed", "replaced", "dead_count", "result_mark",
        "began", "took",
    ]  # fmt: skip
    list_display_links = ["id_text"]
    list_filter = [CrmFilter, PolicyFilter, RunFilter, ("id", IdTimeFilter)]
    search_help_text = _("An operation's id")
    page_template = "admin/crmsync/operation.html"
    further_pages = [
        AdminPage("<str:pk>/clear/", "crmsync_operation_clear", "clear_view", is_post=True)
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Operation]:
        # The list leaves out `data`, which may have megabytes in each row.
        return super().get_queryset(request).defer("data")

    def clear_view(self, request: HttpRequest, pk: str) -> HttpResponse:
        """The same page with personal data in clear. The audit log gets an entry before that."""
        row = self.row(request, pk)
        personal_or_refuse(request)
        audit(request, "personal_data_shown", f"operation {row.pk}")
        return self.render_row(request, row, **self._content(request, row, clear=True))

    def page(self, request: HttpRequest, row: Any) -> Mapping[str, Any]:
        return self._content(request, row, clear=False)

    def _content(self, request: HttpRequest, row: Any, clear: bool) -> Mapping[str, Any]:
        items: list[Any] = list(Item.objects.filter(operation_id=row.pk)[:_ITEMS])
        items += first_tries(row, _ITEMS - len(items))
        records = Record.objects.in_bulk({item.record_id for item in items})
        for item in items:
            record = records.get(item.record_id)
            key = record.key if record else str(item.record_id)
            item.timeline = timeline_link(item.record_id, key, row.is_of_hive)
            item.tone = TONES.get(item.outcome, "bad")
            item.says = item.message if clear else personal.mask_sentence(item.message)
        return {
            "data": data_text(bytes(row.data), clear),
            "start": moment(row.start_at),
            "end": moment(row.end_at),
            "items": items,
            "items_cut": len(items) == _ITEMS,
            "clear": clear,
            "may_see": request.user.has_perm(personal.PERMISSION),
        }

    id_text = cells.column(_("operation"), lambda row: str(row.pk))
    policy = cells.column(_("policy"), lambda row: row.policy_name or cells.NOTHING)
    dead_count = cells.column(
        _("dead"), lambda row: cells.mark(str(row.dead), "bad") if row.dead else cells.nothing("0")
    )

    @admin.display(description=_("result"))
    def result_mark(self, row: Operation) -> str:
        if row.result is None:
            return cells.mark(gettext("on its way"), "plain")
        if row.result:
            return cells.mark(gettext("ended well"), "good")
        return cells.mark(gettext("with dead records"), "bad")

    began = cells.column(_("began"), lambda row: moment(row.start_at))

    @admin.display(description=_("took"))
    def took(self, row: Operation) -> str:
        if row.end_at is None:
            return cells.NOTHING
        return gettext("%.1f s") % ((row.end_at - row.start_at) / 1000)


def personal_or_refuse(request: HttpRequest) -> None:
    """Raises PermissionDenied."""
    if not request.user.has_perm(personal.PERMISSION):
        raise PermissionDenied


def data_text(data: bytes, clear: bool) -> str:
    """An operation's data, one record on each line."""
    try:
        # The data is not decoded as requests, so that data of an older version is shown too.
        content = json.loads(data)
        requests = [
            row if clear else {**row, "fields": personal.mask_value(row.get("fields", {}))}
            for row in content
        ]
    except (ValueError, TypeError, AttributeError):
        return gettext("The data cannot be read.")
    lines = ",\n".join(msgspec.json.encode(request).decode() for request in requests)
    return f"[{lines}]"


def moment(milliseconds: int | None) -> str:
    """A time to the millisecond, in the reader's time zone; '' for none."""
    if milliseconds is None:
        return ""
    when = timezone.localtime(datetime.fromtimestamp(milliseconds / 1000, UTC))
    return f"{formats.date_format(when, 'Y-m-d H:i:s')}.{milliseconds % 1000:03d}"


@admin.register(ExceptionEntry)
class ExceptionAdmin(NamedRowsAdmin):
    list_display = ["time", "where", "kind_mark", "says", "records", "operation"]
    list_display_links = None
    list_filter = [CrmFilter, ("id", IdTimeFilter)]
    search_help_text = _("An operation's id")

    def search_rows(self, request: HttpRequest, rows: QuerySet[Any], text: str) -> QuerySet[Any]:
        number = row_id(text)
        return rows.none() if number is None else rows.filter(operation_id=number)

    time = cells.column(_("time"), lambda row: cells.moment(row.at))

    @admin.display(description=_("CRM or source"))
    def where(self, row: Any) -> str:
        return cells.lines(row.crm_name or row.source_name, _("from %s") % row.source_name)

    kind_mark = cells.column(_("kind"), lambda row: cells.mark(row.kind, "warn"))
    says = cells.column(
        _("what was said"), lambda row: cells.cut(personal.mask_sentence(row.message), 300)
    )

    @admin.display(description=_("operation"))
    def operation(self, row: ExceptionEntry) -> str:
        if not row.operation_id:
            return cells.NOTHING
        url = reverse("admin:crmsync_operation_change", args=[row.operation_id])
        return cells.link(url, row.operation_id)
