"""What the lists of CRM sync share: names of what rows refer to, filters by CRM and policy, pages.

Rows refer to policies and CRMs by id; names are read for the rows of a page, all at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from crmsync.models import Crm, Policy
from msgplatform.admin import IdTimeFilter, PickFilter, ReadOnlyAdmin, row_id
from msgplatform.admin.base import BoundedList

_LISTED = 500  # CRMs or policies that a filter offers


def named(rows: list[Any]) -> list[Any]:
    """Rows with the names of their policy, source and CRM: two queries, however many they are."""
    policies: Mapping[int, Policy] = Policy.objects.select_related("source", "crm").in_bulk(
        {row.policy_id for row in rows}
    )
    crms = Crm.objects.in_bulk({getattr(row, "crm_id", 0) for row in rows} - {0})
    for row in rows:
        policy = policies.get(row.policy_id)
        crm = crms.get(getattr(row, "crm_id", 0)) or (policy and policy.crm)
        row.policy_name = str(policy or "")
        row.source_name = str(policy.source) if policy else ""
        row.crm_name = str(crm or "")
        row.is_of_hive = bool(policy and policy.source.is_hive)
    return rows


def story(record_id: int, key: str, is_of_hive: bool) -> SafeString:
    """The record's key, leading to the page that tells what happened to it."""
    url = reverse("console:message", args=["crmsync", story_id(record_id, key, is_of_hive)])
    return format_html(
        '<a class="text-primary-600 dark:text-primary-500" href="{}">{}</a>', url, key or record_id
    )


def story_id(record_id: int, key: str, is_of_hive: bool) -> str:
    """A lead's is told for all CRMs at once."""
    return key if is_of_hive and key.isdigit() else f"record-{record_id}"


class NamedList(BoundedList):
    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        self.result_list = self.completed(list(self.result_list))

    def completed(self, rows: list[Any]) -> list[Any]:
        """The rows of the page with what their columns need."""
        return named(rows)


class CrmFilter(PickFilter):
    """Rows that have a `crm_id`, or else those of the CRM's policies."""

    title = _("CRM")
    parameter_name = "crm"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        rows = Crm.objects.order_by("name").values_list("pk", "name")[:_LISTED]
        return [(str(pk), name) for pk, name in rows]

    def queryset(self, request: HttpRequest, queryset: QuerySet) -> QuerySet:
        chosen = row_id(self.value())
        if chosen is None:
            return queryset
        if any(field.name == "crm_id" for field in queryset.model._meta.concrete_fields):
            return queryset.filter(crm_id=chosen)
        return queryset.filter(policy_id__in=policy_ids(crm_id=chosen))


class PolicyFilter(PickFilter):
    title = _("policy")
    parameter_name = "policy"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        rows = Policy.objects.select_related("source", "crm")[:_LISTED]
        return [(str(row.pk), str(row)) for row in rows]

    def queryset(self, request: HttpRequest, queryset: QuerySet) -> QuerySet:
        chosen = row_id(self.value())
        return queryset if chosen is None else queryset.filter(policy_id=chosen)


def policy_ids(**condition: Any) -> list[int]:
    """As a list: databases use the index for numbers, and not for a subquery."""
    return list(Policy.objects.filter(**condition).order_by().values_list("pk", flat=True))


class RowsAdmin(ReadOnlyAdmin):
    """A list of a table of any size; a row has a page of its own instead of a form."""

    list_select_related: Iterable[str] = ()
    list_filter_submit = True
    sortable_by = ()
    search_fields = ["id"]
    page_template = ""

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[BoundedList]:
        return NamedList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet, search_term: str
    ) -> tuple[QuerySet, bool]:
        text = search_term.strip()
        return (self.found(queryset, text), False) if text else (queryset, False)

    def found(self, rows: QuerySet, text: str) -> QuerySet:
        number = row_id(text)
        return rows.none() if number is None else rows.filter(pk=number)

    def row(self, request: HttpRequest, object_id: Any, change: bool = False) -> Any:
        """The row of an address, with its names. Raises Http404, PermissionDenied."""
        number = row_id(object_id)
        row = number is not None and self.get_queryset(request).filter(pk=number).first()
        if not row:
            raise Http404(_("There is no such row; it may have been deleted by retention."))
        allowed = self.has_operate_permission(request) if change else True
        if not (allowed and self.has_view_permission(request, row)):
            raise PermissionDenied
        return named([row])[0]

    def page(self, request: HttpRequest, row: Any) -> Mapping[str, Any]:
        """What the template of a row's page needs."""
        return {}

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        row = self.row(request, object_id)
        return self.shown(request, row, **self.page(request, row))

    def shown(
        self, request: HttpRequest, row: Any, template: str = "", **context: Any
    ) -> HttpResponse:
        given = {
            **self.admin_site.each_context(request),
            "title": str(self.opts.verbose_name).capitalize(), "opts": self.opts, "row": row,
            "may_change": self.has_operate_permission(request), **context,
        }  # fmt: skip
        response = TemplateResponse(request, template or self.page_template, given)
        response["Cache-Control"] = "no-store"
        return response


class MomentFilter(IdTimeFilter):
    """A period of a column that is a time: `("created_at", MomentFilter)`."""

    def queryset(self, request: HttpRequest, queryset: QuerySet) -> QuerySet:
        since, until = (self.moment(name) for name in self.expected_parameters())
        if since:
            queryset = queryset.filter(**{f"{self.field_path}__gte": since})
        if until:
            queryset = queryset.filter(**{f"{self.field_path}__lt": until})
        return queryset
