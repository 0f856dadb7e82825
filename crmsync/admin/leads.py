"""The hive: leads as they are stored. They are changed over the API."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext, pgettext
from django.utils.translation import gettext_lazy as _

from crmsync import lead_fields
from crmsync.models import LandingPage, Lead
from msgplatform.admin import (
    IdTimeFilter,
    PickFilter,
    ReadOnlyAdmin,
    cells,
    row_id,
    sees_personal,
)
from msgplatform.admin.recent_rows import RecentRowsList
from msgplatform.core.data import ids, sql
from msgplatform.core.errors import InvalidInput
from msgplatform.models import Biz

_LISTED = 500  # pages or systems that a filter offers


class PageFilter(PickFilter):
    title = _("landing page")
    parameter_name = "page"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        pages = LandingPage.objects.order_by("title")[:_LISTED]
        return [(page.appkey, f"{page} ({page.appkey})") for page in pages]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Lead]) -> QuerySet[Lead]:
        return queryset.filter(appkey=self.value()) if self.value() else queryset


class SystemFilter(PickFilter):
    title = _("system")
    parameter_name = "system"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(str(biz.pk), str(biz)) for biz in Biz.objects.order_by("name")[:_LISTED]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Lead]) -> QuerySet[Lead]:
        chosen = row_id(self.value())
        return queryset if chosen is None else sql.of_one(queryset, "biz_id", chosen)


class DeletedFilter(PickFilter):
    title = _("state")
    parameter_name = "deleted"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("no", gettext("not deleted")), ("yes", gettext("deleted"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Lead]) -> QuerySet[Lead]:
        chosen = {"no": False, "yes": True}.get(str(self.value()))
        return queryset if chosen is None else queryset.filter(is_delete=chosen)


@admin.register(Lead)
class LeadAdmin(ReadOnlyAdmin):
    personal_fields = ("name", "phone", "extra")
    list_display = ["id", "name", "phone", "uid", "appkey", "state", "created", "changed"]
    list_filter = [PageFilter, SystemFilter, DeletedFilter, ("id", IdTimeFilter)]
    list_filter_submit = True
    # Leads refer to their system by id; lists do not show it.
    list_select_related = ()
    sortable_by = ()
    search_fields = ["id"]
    search_help_text = _("Id, phone number, UID or APPKEY, whole")
    masked_search_help_text = _("Id, UID or APPKEY, whole")
    fields = ["id", "timeline", "biz", "appkey", "uid", "name", "phone", "extra", "is_delete",
              "version", "created", "update_time"]  # fmt: skip

    list_before_template = "admin/crmsync/leads_bar.html"

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[RecentRowsList]:
        return RecentRowsList

    def indexed_parameters(self, selection: Mapping[str, str], query: str) -> set[str]:
        """All but whether a lead is deleted."""
        return {"page", "system", "id_since", "id_until", "q"}

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Lead], search_term: str
    ) -> tuple[QuerySet[Lead], bool]:
        text = search_term.strip()
        if not text:
            return queryset, False
        number = row_id(text)
        conditions = [] if number is None else [Q(pk=number)]
        if sees_personal(request):  # others could guess what is masked
            with suppress(InvalidInput):
                conditions.append(Q(phone=lead_fields.clean_phone(text)))
        for condition in [*conditions, Q(uid=text), Q(appkey=text)]:
            # One index at a time: an OR over several ends in a pass over the table.
            if Lead.objects.filter(condition).exists():
                return queryset.filter(condition), False
        return queryset.none(), False

    @admin.display(description=_("state"))
    def state(self, row: Lead) -> str:
        if row.is_delete:
            return cells.mark(gettext("deleted"), "plain")
        return cells.mark(pgettext("state", "stored"), "good")

    @admin.display(description=_("at the CRMs"))
    def timeline(self, row: Lead) -> str:
        return cells.message_link("crmsync", row.pk)

    @admin.display(description=_("created"))
    def created(self, row: Lead) -> str:
        return cells.moment(ids.datetime_of(row.pk))

    @admin.display(description=_("changed"))
    def changed(self, row: Lead) -> str:
        return cells.moment(row.update_time)
