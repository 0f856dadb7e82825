"""The lists of MOs, Reports and changes of users, of any size: on indexes, in the order of the ids,
without joins."""

from collections.abc import Mapping
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext, gettext_lazy as _

from gateway import codes
from gateway.messages.in_flight import searched_numbers
from gateway.models import SgipMo, SgipReport, SgipUserRpt, SmsAccount, SmsGateway
from msgplatform.core.data import sql
from msgplatform.doors.admin import (
    IdTimeFilter,
    PickFilter,
    ReadOnlyAdmin,
    RowsAdmin,
    cells,
    row_id,
    sees_personal,
)
from msgplatform.models import Biz

_MAX_SYSTEMS = 500  # choices of the filter
_WITHOUT_OWNER = "0"


def add_names(rows: list[Any]) -> list[Any]:
    """Rows with the names of what they refer to: three queries for any number of rows."""
    models: Mapping[str, Any] = {"biz": Biz, "account": SmsAccount, "gateway": SmsGateway}
    for field, model in models.items():
        ids = [getattr(row, f"{field}_id", 0) for row in rows]
        names = sql.names_by_id(model.objects.all(), ids)
        for row, pk in zip(rows, ids, strict=True):
            setattr(row, f"{field}_name", names.get(pk, ""))
    return rows


class OwnerFilter(PickFilter):
    title = _("owner")
    parameter_name, column, is_id = "owner", "biz_id", True
    names_systems = True

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        rows = Biz.objects.order_by("name")[:_MAX_SYSTEMS]
        return [
            (_WITHOUT_OWNER, gettext("without owner")),
            *((str(biz.pk), str(biz)) for biz in rows),
        ]


class UnmatchedFilter(PickFilter):
    title = _("message")
    parameter_name = "matched"
    # Only this choice: nearly all rows have a match, and no index would narrow these.
    options = (("no", _("matched nothing")),)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(mt_id=0) if self.value() == "no" else queryset


class ArchiveAdmin(RowsAdmin):
    """A list of an archive's table, whose rows have the usual form."""

    change_view = ReadOnlyAdmin.change_view

    def add_details(self, rows: list[Any]) -> list[Any]:
        return add_names(rows)

    def search_rows(self, request: HttpRequest, rows: QuerySet[Any], text: str) -> QuerySet[Any]:
        """Search by id, else by number: both have an index. Only people who may see numbers can
        search by number: others could guess what is masked."""
        # Digits may be an id or a number. An existing id comes first.
        number = row_id(text)
        if number is not None and rows.filter(pk=number).exists():
            return rows.filter(pk=number)
        numbers = searched_numbers(text)
        return rows.filter(user_number__in=numbers) if sees_personal(request) else rows.none()

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> Any:
        row = super().get_object(request, object_id, from_field)
        return row and add_names([row])[0]

    @admin.display(description=_("account"))
    def account(self, row: Any) -> str:
        """The account, and below it the system if it has another name."""
        if not row.account_name:
            return cells.NOTHING
        return cells.lines(row.account_name, row.biz_name)

    gateway = cells.column(_("gateway"), lambda row: row.gateway_name or cells.NOTHING)
    shown_text = cells.column(_("text"), lambda row: cells.cut(row.text))


@admin.register(SgipMo)
class SgipMoAdmin(ArchiveAdmin):
    system_lookup = "biz_id"
    limited_views = frozenset({"changelist_view", "change_view"})
    personal_fields = ("user_number",)
    content_fields = ("text",)
    list_display = [
        "id_text", "number", "owner", "gateway", "shown_text", "whole", "received_at",
    ]  # fmt: skip
    list_display_links = ["id_text"]
    list_filter = [OwnerFilter, ("id", IdTimeFilter)]
    search_help_text = _("Id or number")
    fields = [
        "user_number", "sp_number", "owner", "gateway", "text", "whole", "coding", "sequence",
        "received_at", "archived_at",
    ]  # fmt: skip

    id_text = cells.column(_("id"), lambda row: str(row.pk))
    number = cells.column(
        _("number"), lambda row: cells.lines(row.user_number, gettext("to %s") % row.sp_number)
    )

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        changelist: Any = super().get_changelist_instance(request)
        if not sees_personal(request):
            changelist.search_help_text = _("Id")
        return changelist

    @admin.display(description=_("owner"))
    def owner(self, row: Any) -> str:
        if not row.biz_name:
            return cells.mark(gettext("nobody"), "warn")
        return self.account(row)

    @admin.display(description=_("parts"))
    def whole(self, row: SgipMo) -> str:
        if not row.missing:
            return str(row.parts)
        return cells.mark(gettext("%d missing") % row.missing, "warn")

    coding = cells.column(_("coding"), lambda row: codes.meaning(codes.CODINGS, row.message_coding))


@admin.register(SgipReport)
class SgipReportAdmin(ArchiveAdmin):
    personal_fields = ("user_number",)
    list_display = [
        "received_at", "message", "user_number", "sequence", "of_part", "state_mark", "meaning",
    ]  # fmt: skip
    list_display_links = ["received_at"]
    list_filter = [UnmatchedFilter, ("id", IdTimeFilter)]
    search_help_text = _("Message id")
    fields = [
        "message", "user_number", "sequence", "of_part", "state_mark", "meaning", "received_at",
        "archived_at",
    ]  # fmt: skip

    def search_rows(self, request: HttpRequest, rows: QuerySet[Any], text: str) -> QuerySet[Any]:
        number = row_id(text)
        return rows.none() if number is None else rows.filter(mt_id=number)

    @admin.display(description=_("message"))
    def message(self, row: SgipReport) -> str:
        if row.mt_id:
            return cells.message_link("sms", row.mt_id)
        return cells.mark(gettext("matched nothing"), "warn")

    sequence = cells.column(_("sequence"), lambda row: f"{row.node}:{row.ts}:{row.seqno}")
    of_part = cells.column(_("part"), lambda row: str(row.part) if row.part else cells.NOTHING)

    @admin.display(description=_("state"))
    def state_mark(self, row: SgipReport) -> str:
        tone = {0: "good", 2: "bad"}.get(row.state, "plain")
        return cells.mark(codes.meaning(codes.STATES, row.state), tone)

    meaning = cells.column(
        _("error"), lambda row: codes.with_meaning(row.error_code) or cells.NOTHING
    )


@admin.register(SgipUserRpt)
class SgipUserRptAdmin(ArchiveAdmin):
    personal_fields = ("user_number",)
    list_display = ["id_text", "user_number", "sp_number", "condition", "gateway", "received_at"]
    list_display_links = ["id_text"]
    list_filter = [("id", IdTimeFilter)]
    search_help_text = _("Id")
    fields = [
        "user_number", "sp_number", "condition", "gateway", "sequence", "received_at",
        "archived_at",
    ]  # fmt: skip

    search_rows = RowsAdmin.search_rows

    id_text = cells.column(_("id"), lambda row: str(row.pk))
    condition = cells.column(
        _("condition"), lambda row: codes.meaning(codes.CONDITIONS, row.user_condition)
    )
