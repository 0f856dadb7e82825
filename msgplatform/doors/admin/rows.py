"""Lists of rows that have a page of their own instead of a form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.translation import gettext_lazy as _

from msgplatform.doors.admin.base import BoundedList, ReadOnlyAdmin
from msgplatform.doors.admin.filters import row_id
from msgplatform.doors.admin.pages import show_page


class RowList(BoundedList):
    """The rows of the page, completed by `RowsAdmin.add_details`."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        rows_admin: Any = self.model_admin
        self.result_list = rows_admin.add_details(list(self.result_list))


class RowsAdmin(ReadOnlyAdmin):
    """A list of a table of any size; a row has a page of its own instead of a form."""

    list_select_related = ()
    list_filter_submit = True
    sortable_by = ()
    search_fields = ["id"]
    page_template = ""
    # The template of the parts that change, for a page that renews itself (`live.js`).
    live_template = ""

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[RowList]:
        return RowList

    def add_details(self, rows: list[Any]) -> list[Any]:
        """Add what the rows' columns need, with a number of queries that does not depend on the
        number of rows."""
        return rows

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        text = search_term.strip()
        return (self.search_rows(queryset, text), False) if text else (queryset, False)

    def search_rows(self, rows: QuerySet[Any], text: str) -> QuerySet[Any]:
        number = row_id(text)
        return rows.none() if number is None else rows.filter(pk=number)

    def row(self, request: HttpRequest, object_id: Any, change: bool = False) -> Any:
        """The row that a URL names, completed. Raises Http404, PermissionDenied."""
        number = row_id(object_id)
        row = number is not None and self.get_queryset(request).filter(pk=number).first()
        if not row:
            raise Http404(_("There is no such row; it may have been deleted by retention."))
        # Checked after the row is found: people of the console may know that a row exists.
        may_act = self.has_operate_permission(request) if change else True
        if not (may_act and self.has_view_permission(request, row)):
            raise PermissionDenied
        self.mask(request, [row])
        return self.add_details([row])[0]

    def page(self, request: HttpRequest, row: Any) -> Mapping[str, Any]:
        """The template context of a row's page."""
        return {}

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        row = self.row(request, object_id)
        template = self.live_template if "live" in request.GET else ""
        return self.render_row(request, row, template, **self.page(request, row))

    def render_row(
        self, request: HttpRequest, row: Any, template: str = "", **context: Any
    ) -> HttpResponse:
        frame = {
            "row": row, "may_change": self.has_operate_permission(request),
            "title": str(self.opts.verbose_name).capitalize(),
        }  # fmt: skip
        return show_page(self, request, template or self.page_template, **{**frame, **context})
