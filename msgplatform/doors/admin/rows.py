"""Rows that only the platform writes, in tables of any size: bounded lists, lists of newest rows,
and pages of rows instead of forms."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.contrib.admin import ShowFacets
from django.contrib.admin.exceptions import DisallowedModelAdminLookup
from django.core.exceptions import PermissionDenied
from django.core.paginator import Page, Paginator
from django.db.models import Count, Min, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.functional import cached_property
from django.utils.translation import gettext_lazy as _

from msgplatform.core import personal
from msgplatform.doors.admin.base import ModelAdmin, PlainList, sees_personal
from msgplatform.doors.admin.filters import row_id
from msgplatform.doors.admin.pages import show_page


class BoundedPaginator(Paginator):  # type: ignore[type-arg]  # it takes none at run time
    """Pages through a hot table: the count is bounded, and only ids are sorted."""

    # COUNT(*) of a hot table grows with the table, and nobody pages further than this.
    MAX_COUNT = 10_000
    template_name = "admin/bounded_pages.html"

    @cached_property
    def count(self) -> int:
        return min(self._bounded_count, self.MAX_COUNT)

    @property
    def is_cut(self) -> bool:
        """True if there are more rows than `count`."""
        return self._bounded_count > self.MAX_COUNT

    @cached_property
    def _bounded_count(self) -> int:
        rows: Any = self.object_list
        return int(rows.order_by()[: self.MAX_COUNT + 1].count())

    def page(self, number: int | str) -> Page[Any]:
        """Reads the ids first, which an index has, then the rows of one page. A database that has
        to sort then sorts numbers instead of whole rows."""
        number = self.validate_number(number)
        rows: Any = self.object_list
        start = (number - 1) * self.per_page
        ids = list(rows.values_list("pk", flat=True)[start : start + self.per_page])
        rows_by_id = {row.pk: row for row in rows.order_by().filter(pk__in=ids)}
        return Page([rows_by_id[pk] for pk in ids if pk in rows_by_id], number, self)


class BoundedList(PlainList):
    """A list that uses BoundedPaginator also for a single page, where Django would read all rows.

    The address may name the list's own filters and the primary key: a lookup on another column
    would read the table, or ask for what is masked.
    """

    def get_filters(self, request: HttpRequest) -> Any:
        filters = super().get_filters(request)
        key = self.lookup_opts.pk.name
        if other_names := set(filters[2]) - {"pk", "pk__exact", key, f"{key}__exact"}:
            raise DisallowedModelAdminLookup(f"Filtering by {min(other_names)} not allowed")
        return filters

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        if not self.multi_page:
            self.result_list = self.paginator.page(1).object_list
        rows_admin: Any = self.model_admin
        rows_admin.mask(request, self.result_list)
        self.result_list = rows_admin.add_details(list(self.result_list))


class ReadOnlyAdmin(ModelAdmin):
    """Rows that only the platform writes; lists of any size.

    Nobody edits them; people with the permission to change them may act on them.
    """

    paginator = BoundedPaginator
    show_facets = ShowFacets.NEVER  # counting each choice of a filter would read the table
    list_class = BoundedList

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> Any:
        row = super().get_object(request, object_id, from_field)
        if row is not None:
            self.mask(request, [row])
        return row

    def add_details(self, rows: list[Any]) -> list[Any]:
        """Add what the rows' columns need. The number of queries does not depend on the number of
        rows."""
        return rows

    def mask(self, request: HttpRequest, rows: Iterable[Any]) -> None:
        """Mask personal data in rows that are only shown, and never saved."""
        masks = {
            **dict.fromkeys(self.personal_fields, personal.mask_value),
            **dict.fromkeys(self.content_fields, personal.mask_content),
            **dict.fromkeys(self.sentence_fields, personal.mask_sentences),
        }
        if not masks or sees_personal(request):
            return
        for row in rows:
            for name, mask in masks.items():
                setattr(row, name, mask(getattr(row, name)))


class RowsAdmin(ReadOnlyAdmin):
    """A list of a table of any size; a row has a page of its own instead of a form."""

    # No join: MariaDB would read and sort the whole table before it cuts the page.
    list_select_related = ()
    list_filter_submit = True
    sortable_by = ()
    search_fields = ["id"]
    page_template = ""
    # The template of the changing parts of a page that renews itself (`live.js`).
    live_template = ""

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        text = search_term.strip()
        return (self.search_rows(request, queryset, text) if text else queryset), False

    def search_rows(self, request: HttpRequest, rows: QuerySet[Any], text: str) -> QuerySet[Any]:
        number = row_id(text)
        return rows.none() if number is None else rows.filter(pk=number)

    def row(self, request: HttpRequest, object_id: Any, change: bool = False) -> Any:
        """The row that a URL names, with its details. Raises Http404, PermissionDenied."""
        number = row_id(object_id)
        row = None if number is None else self.get_queryset(request).filter(pk=number).first()
        if row is None:
            raise Http404(_("There is no such row; it may have been deleted by retention."))
        # Check permissions after finding the row: people of the console may know that it exists.
        may_act = not change or self.has_operate_permission(request)
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


MAX_RECENT_ROWS = 20_000  # number of newest rows to which a filter without an index is applied


class RecentRowsList(BoundedList):
    """A list that applies filters without an index to its newest rows only.

    `recent_limit` is the number of these rows, 0 if the filters were applied to all. The admin's
    method `indexed_parameters(selection, query)` names the parameters of filters with an index; "q"
    is the search.
    """

    recent_limit = 0

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        rows = super().get_queryset(request, exclude_parameters)
        model_admin: Any = self.model_admin
        index_parameters = model_admin.indexed_parameters(request.GET, self.query)
        indexed_filters: list[Any] = []
        other_filters: list[Any] = []
        for spec in self.filter_specs:
            names = spec.expected_parameters()
            if not any(request.GET.get(str(name)) for name in names):
                continue
            if index_parameters.intersection(names):
                indexed_filters.append(spec)
            else:
                other_filters.append(spec)
        if not other_filters and (not self.query or "q" in index_parameters):
            return rows
        # The newest rows that match the filters with an index. Other filters see only these rows.
        newest: Any = self.root_queryset
        for spec in indexed_filters:
            newest = spec.queryset(request, newest)
        if "q" in index_parameters:
            newest, _distinct = model_admin.get_search_results(request, newest, self.query)
        first_id = first_recent(newest)
        if first_id is None:
            return rows
        self.recent_limit = MAX_RECENT_ROWS
        return rows.filter(pk__gte=first_id)


def first_recent(rows: QuerySet[Any]) -> Any:
    """The id from which the newest MAX_RECENT_ROWS rows begin; None if there are fewer rows."""
    newest: Any = rows.order_by("-pk").values("pk")[:MAX_RECENT_ROWS]
    totals = newest.aggregate(first=Min("pk"), count=Count("pk"))
    return None if totals["count"] < MAX_RECENT_ROWS else totals["first"]
