"""Messages sent: the archive's list, all fields of one, and sending them again."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import redirect
from django.urls import URLPattern, path
from django.utils import formats, timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from gateway.admin import again, codes, trial_sms
from gateway.admin.archive import AccountFilter, ArchiveAdmin
from gateway.messages import resent
from gateway.messages.index import MESSAGES
from gateway.models import SgipMt
from gateway.monitor.failures import RESENDABLE
from msgplatform.admin import ChoiceFilter, IdTimeFilter, cells
from msgplatform.core.connections import RedisError
from msgplatform.core.durations import age
from msgplatform.messages import engine

_FOUND = 500  # what a search shows at most: the page makes an IN of them
_Final = SgipMt.Final
_TONES: dict[str, str] = {
    _Final.DELIVERED: "good", _Final.ACCEPTED: "plain", _Final.EXPIRED: "warn",
    _Final.UNKNOWN: "warn", _Final.FAILED: "bad",
}  # fmt: skip


@admin.register(SgipMt)
class SgipMtAdmin(ArchiveAdmin):
    personal_fields = ("user_number", "charge_number")
    content_fields = ("text",)
    list_display = [
        "page", "user_number", "account", "gateway", "state_mark", "shown_text", "accepted",
    ]  # fmt: skip
    list_display_links = ["user_number"]
    list_filter = [("final", ChoiceFilter), AccountFilter, ("id", IdTimeFilter)]
    search_help_text = _("Message id, number, idempotency key or reference")
    masked_search_help_text = _("Message id, idempotency key or reference")
    list_before_template = "admin/gateway/messages_bar.html"
    change_form_outer_before_template = "admin/gateway/message_bar.html"
    actions = ["send_again"]
    fieldsets = [
        (
            None,
            {"fields": ["user_number", "sp_number", "account", "gateway", "state_mark", "text",
                        "parts", "reference", "idempotency_key"]},
        ),
        (
            _("Times"),
            {"fields": ["accepted_at", "schedule_at", "expire_at", "submitted_at", "responded_at",
                        "reported_at", "ended_at", "archived_at"]},
        ),
        (
            _("What the operator got"),
            {"fields": ["corp_id", "service_type", "charge_number", "fee", "fee_value",
                        "given_value", "agent", "cause", "reporting", "coding", "priority"]},
        ),
    ]  # fmt: skip

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            path("<int:message>/again/", wrap(self.again_view), name="sms_again"),
            path("test/", wrap(trial_sms.page(self)), name="sms_test"),
            *super().get_urls(),
        ]

    def found(self, rows: QuerySet[Any], text: str, clear: bool) -> QuerySet[Any]:
        """What the search of the console finds."""
        return rows.filter(
            pk__in=[int(hit.id) for hit in engine.search(MESSAGES, text, _FOUND, clear)]
        )

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> Any:
        """With what its page offers to do."""
        row = super().get_object(request, object_id, from_field)
        if row is not None:
            with suppress(RedisError):  # the page is worth showing without it
                row.sent_again = resent.again_as(row.biz_id, row.pk)
            row.may_be_sent = row.final in RESENDABLE and self.has_operate_permission(request)
        return row

    def again_view(self, request: HttpRequest, message: int) -> HttpResponse:
        """Send one again, and lead to the new message."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not self.has_operate_permission(request):
            raise PermissionDenied
        row = SgipMt.objects.filter(pk=message).first()
        if row is None:
            raise Http404
        new = again.send(request, [row])
        if new:
            return redirect("console:message", "sms", new[-1])
        return redirect("admin:gateway_sgipmt_change", message)

    @admin.action(description=_("Send again"), permissions=["operate"])
    def send_again(self, request: HttpRequest, queryset: QuerySet[SgipMt]) -> HttpResponse | None:
        # One more than may be, instead of counting a selection of any size.
        rows = list(queryset.order_by()[: again.MOST + 1])
        if len(rows) > again.MOST:
            messages.warning(
                request,
                gettext("More than %d are selected: use a bulk job, which can be paced and "
                        "stopped.") % again.MOST,
            )  # fmt: skip
            return redirect("console:bulk-flow", "sms")
        again.send(request, rows)
        return None

    @admin.display(description=_("message"))
    def page(self, row: SgipMt) -> str:
        return cells.message_link("sms", row.pk)

    @admin.display(description=_("state"))
    def state_mark(self, row: SgipMt) -> str:
        """With what went wrong below it."""
        text = str(row.get_final_display())
        why = codes.with_meaning(row.error_code) or row.error
        return cells.mark(text, _TONES.get(row.final, "plain"), below=why)

    @admin.display(description=_("accepted"))
    def accepted(self, row: SgipMt) -> str:
        """With how long it took."""
        at = formats.localize(timezone.localtime(row.accepted_at))
        ended_at = row.ended_at or row.reported_at
        if ended_at is None:
            return str(at)
        took = (ended_at - row.accepted_at).total_seconds()
        return cells.lines(at, gettext("ended after %s") % age(max(0.0, took)))

    @admin.display(description=_("fee type"))
    def fee(self, row: SgipMt) -> str:
        return codes.meaning(codes.FEE_TYPES, row.fee_type)

    @admin.display(description=_("agent flag"))
    def agent(self, row: SgipMt) -> str:
        return codes.meaning(codes.AGENT_FLAGS, row.agent_flag)

    @admin.display(description=_("MT flag"))
    def cause(self, row: SgipMt) -> str:
        return codes.meaning(codes.MT_FLAGS, row.morelateto_mt_flag)

    @admin.display(description=_("report flag"))
    def reporting(self, row: SgipMt) -> str:
        return codes.meaning(codes.REPORT_FLAGS, row.report_flag)

    @admin.display(description=_("coding"))
    def coding(self, row: SgipMt) -> str:
        return codes.meaning(codes.CODINGS, row.message_coding)
