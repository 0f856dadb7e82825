"""The exception log: calls that failed as a whole."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from crmsync.admin.rows import CrmFilter, NamedRowsAdmin
from crmsync.models import ExceptionEntry
from msgplatform.core import personal
from msgplatform.doors.admin import IdTimeFilter, cells, row_id


@admin.register(ExceptionEntry)
class ExceptionAdmin(NamedRowsAdmin):
    list_display = ["time", "where", "kind_mark", "says", "records", "operation"]
    list_display_links = None
    list_filter = [CrmFilter, ("id", IdTimeFilter)]
    search_help_text = _("An operation's id")

    def search_rows(self, rows: QuerySet[Any], text: str) -> QuerySet[Any]:
        number = row_id(text)
        return rows.none() if number is None else rows.filter(operation_id=number)

    @admin.display(description=_("time"))
    def time(self, row: ExceptionEntry) -> str:
        return cells.moment(row.at)

    @admin.display(description=_("CRM or source"))
    def where(self, row: Any) -> str:
        return cells.lines(row.crm_name or row.source_name, _("from %s") % row.source_name)

    @admin.display(description=_("kind"))
    def kind_mark(self, row: ExceptionEntry) -> str:
        return cells.mark(row.kind, "warn")

    @admin.display(description=_("what was said"))
    def says(self, row: ExceptionEntry) -> str:
        return cells.cut(personal.in_sentence(row.message), 300)

    @admin.display(description=_("operation"))
    def operation(self, row: ExceptionEntry) -> str:
        if not row.operation_id:
            return cells.NOTHING
        url = reverse("admin:crmsync_operation_change", args=[row.operation_id])
        return cells.link(url, row.operation_id)
