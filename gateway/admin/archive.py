"""The archive's lists, of any size: on indexes, in the order of the ids, without joins."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import URLPattern, path
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from gateway import search, sgip
from gateway.admin import cells, reports
from gateway.models import SgipMo, SgipMt, SgipReport, SgipUserRpt, SmsAccount, SmsGateway
from msgplatform.admin import ChoiceFilter, IdTimeFilter, PickFilter, ReadOnlyAdmin, row_id
from msgplatform.admin.base import BoundedList
from msgplatform.models import Biz

_FOUND = 500  # what a search shows at most
_LISTED = 500  # accounts or systems that a filter offers
_NOBODY = "0"


class NamedList(BoundedList):
    """Names what the shown rows refer to by id: three queries, however many they are."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        rows = list(self.result_list)
        bizs = _names(Biz, (getattr(row, "biz_id", 0) for row in rows))
        accounts = _names(SmsAccount, (getattr(row, "account_id", 0) for row in rows))
        gateways = _names(SmsGateway, (getattr(row, "gateway_id", 0) for row in rows))
        for row in rows:
            row.biz_name = bizs.get(getattr(row, "biz_id", 0), "")
            row.account_name = accounts.get(getattr(row, "account_id", 0), "")
            row.gateway_name = gateways.get(getattr(row, "gateway_id", 0), "")
        self.result_list = rows


def _names(model: Any, ids: Iterable[int]) -> dict[int, str]:
    wanted = {pk for pk in ids if pk}
    return {row.pk: str(row) for row in model.objects.filter(pk__in=wanted)} if wanted else {}


class AccountFilter(PickFilter):
    title = _("account")
    parameter_name = "account"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        rows = SmsAccount.objects.order_by("name").values_list("pk", "name")[:_LISTED]
        return [(str(pk), name) for pk, name in rows]

    def queryset(self, request: HttpRequest, queryset: QuerySet) -> QuerySet:
        chosen = row_id(self.value())
        return queryset if chosen is None else queryset.filter(account_id=chosen)


class OwnerFilter(PickFilter):
    title = _("owner")
    parameter_name = "owner"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        rows = Biz.objects.order_by("name")[:_LISTED]
        return [(_NOBODY, gettext("without owner")), *((str(biz.pk), str(biz)) for biz in rows)]

    def queryset(self, request: HttpRequest, queryset: QuerySet) -> QuerySet:
        chosen = row_id(self.value())
        return queryset if chosen is None else queryset.filter(biz_id=chosen)


class UnmatchedFilter(PickFilter):
    title = _("message")
    parameter_name = "matched"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("no", gettext("matched nothing"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet) -> QuerySet:
        return queryset.filter(mt_id=0) if self.value() == "no" else queryset


class ArchiveAdmin(ReadOnlyAdmin):
    """A list of an archive's table."""

    # A join makes MariaDB read and sort the whole table before it cuts the page.
    list_select_related = ()
    list_display_links = None
    list_filter_submit = True
    sortable_by = ()
    search_fields = ["id"]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return NamedList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet, search_term: str
    ) -> tuple[QuerySet, bool]:
        text = search_term.strip()
        return (self.found(queryset, text), False) if text else (queryset, False)

    def found(self, rows: QuerySet, text: str) -> QuerySet:
        """By id, else by number: both are indexes."""
        number = row_id(text)
        if number is not None and rows.model._default_manager.filter(pk=number).exists():
            return rows.filter(pk=number)
        return rows.filter(user_number=sgip.international(text))

    @admin.display(description=_("system"))
    def system(self, row: Any) -> str:
        return row.biz_name or cells.NOTHING

    @admin.display(description=_("account"))
    def account(self, row: Any) -> str:
        return row.account_name or cells.NOTHING

    @admin.display(description=_("gateway"))
    def gateway(self, row: Any) -> str:
        return row.gateway_name or cells.NOTHING

    @admin.display(description=_("text"))
    def shown_text(self, row: Any) -> str:
        return cells.cut(row.text)


@admin.register(SgipMt)
class SgipMtAdmin(ArchiveAdmin):
    list_display = [
        "story", "user_number", "system", "account", "gateway", "state_mark", "why", "shown_text",
        "accepted_at", "reported_at",
    ]  # fmt: skip
    list_filter = [("final", ChoiceFilter), AccountFilter, ("id", IdTimeFilter)]
    search_help_text = _("Message id, number, idempotency key or reference")
    list_before_template = "admin/gateway/messages_bar.html"

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            path("statistics/", wrap(reports.page(self)), name="sms_statistics"),
            path("statistics.csv", wrap(reports.as_csv(self)), name="sms_statistics_csv"),
            *super().get_urls(),
        ]

    def found(self, rows: QuerySet, text: str) -> QuerySet:
        """What the search of the console finds."""
        return rows.filter(pk__in=[int(hit.id) for hit in search.search(text, _FOUND)])

    @admin.display(description=_("message"))
    def story(self, row: SgipMt) -> str:
        return cells.story(row.pk)

    @admin.display(description=_("state"))
    def state_mark(self, row: SgipMt) -> str:
        return cells.mark(str(row.get_final_display()), cells.TONES.get(row.final, "plain"))

    @admin.display(description=_("error"))
    def why(self, row: SgipMt) -> str:
        if not (row.error_code or row.error):
            return cells.NOTHING
        return f"{row.error_code or ''} {row.error}".strip()


@admin.register(SgipMo)
class SgipMoAdmin(ArchiveAdmin):
    list_display = [
        "id_text", "user_number", "sp_number", "owner", "account", "gateway", "shown_text", "whole",
        "received_at",
    ]  # fmt: skip
    list_filter = [OwnerFilter, ("id", IdTimeFilter)]
    search_help_text = _("Id or number")

    @admin.display(description=_("id"))
    def id_text(self, row: SgipMo) -> str:
        return str(row.pk)

    @admin.display(description=_("owner"))
    def owner(self, row: Any) -> str:
        return row.biz_name or cells.mark(gettext("nobody"), "warn")

    @admin.display(description=_("parts"))
    def whole(self, row: SgipMo) -> str:
        if not row.missing:
            return str(row.parts)
        return cells.mark(gettext("%d missing") % row.missing, "warn")


@admin.register(SgipReport)
class SgipReportAdmin(ArchiveAdmin):
    list_display = [
        "message", "user_number", "sequence", "part", "state_mark", "meaning", "received_at",
    ]  # fmt: skip
    list_filter = [UnmatchedFilter, ("id", IdTimeFilter)]
    search_help_text = _("Message id")

    def found(self, rows: QuerySet, text: str) -> QuerySet:
        number = row_id(text)
        return rows.none() if number is None else rows.filter(mt_id=number)

    @admin.display(description=_("message"))
    def message(self, row: SgipReport) -> str:
        if row.mt_id:
            return cells.story(row.mt_id)
        return cells.mark(gettext("matched nothing"), "warn")

    @admin.display(description=_("sequence"))
    def sequence(self, row: SgipReport) -> str:
        return f"{row.node}:{row.ts}:{row.seqno}"

    @admin.display(description=_("state"))
    def state_mark(self, row: SgipReport) -> str:
        tone = {0: "good", 2: "bad"}.get(row.state, "plain")
        return cells.mark(str(row.state), tone)

    @admin.display(description=_("error"))
    def meaning(self, row: SgipReport) -> str:
        if not row.error_code:
            return cells.NOTHING
        return f"{row.error_code} {sgip.result_text(row.error_code)}"


@admin.register(SgipUserRpt)
class SgipUserRptAdmin(ArchiveAdmin):
    list_display = ["id_text", "user_number", "sp_number", "condition", "gateway", "received_at"]
    list_filter = [("id", IdTimeFilter)]
    search_help_text = _("Id")

    def found(self, rows: QuerySet, text: str) -> QuerySet:
        number = row_id(text)
        return rows.none() if number is None else rows.filter(pk=number)

    @admin.display(description=_("id"))
    def id_text(self, row: SgipUserRpt) -> str:
        return str(row.pk)

    @admin.display(description=_("condition"))
    def condition(self, row: SgipUserRpt) -> str:
        names = [gettext("deregistered"), gettext("suspended"), gettext("back to normal")]
        known = row.user_condition < len(names)
        return names[row.user_condition] if known else str(row.user_condition)
