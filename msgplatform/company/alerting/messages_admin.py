"""Messages about alerts: those that wait, were sent, or failed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from msgplatform.company.alerting.models import AlertChannel, AlertMessage
from msgplatform.core import personal
from msgplatform.doors.admin import cells
from msgplatform.doors.admin.base import sees_personal
from msgplatform.doors.admin.filters import PickFilter
from msgplatform.doors.admin.rows import RowsAdmin

State = AlertMessage.State
_TONES = {State.WAITING: "warn", State.SENT: "good", State.FAILED: "bad", State.DROPPED: "plain"}
_MAX_NOTICES = 200


class StateFilter(PickFilter):
    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(state.value, str(state.label)) for state in State]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(state=self.value()) if self.value() else queryset


class ChannelFilter(PickFilter):
    title = _("alert channel")
    parameter_name = "channel"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        rows = AlertChannel.objects.order_by("name").values_list("pk", "name")[:200]
        return [(str(pk), name) for pk, name in rows]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value() or ""
        return queryset.filter(channel_id=int(value)) if value.isdecimal() else queryset


@admin.register(AlertMessage)
class AlertMessageAdmin(RowsAdmin):
    sentence_fields = ("title", "text", "error")
    empty_text = _("Nothing was sent yet: alerts go out by the rules, to channels.")
    list_display = ["subject", "channel", "kind_text", "state_mark", "created_at", "sent_at"]
    list_display_links = None
    list_filter = [StateFilter, ChannelFilter]
    search_help_text = _("A message's id")
    page_template = "admin/alert_message.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[AlertMessage]:
        rows: QuerySet[AlertMessage] = super().get_queryset(request)
        return rows.select_related("channel", "rule")

    def page(self, request: HttpRequest, row: AlertMessage) -> Mapping[str, Any]:
        notices = list(row.notices.select_related("alert").order_by("pk")[:_MAX_NOTICES])
        for notice in notices:
            notice.alert.translate()
            if not sees_personal(request):
                notice.alert.subject = personal.in_sentence(notice.alert.subject)
        return {"notices": notices, "tone": _TONES[State(row.state)]}

    @admin.display(description=_("message"))
    def subject(self, row: AlertMessage) -> str:
        url = reverse("admin:msgplatform_alertmessage_change", args=[row.pk])
        return cells.link(url, row.title or gettext("not written yet"))

    @admin.display(description=_("what"))
    def kind_text(self, row: AlertMessage) -> str:
        return str(AlertMessage.Kind(row.kind).label)

    @admin.display(description=_("state"))
    def state_mark(self, row: AlertMessage) -> str:
        state = State(row.state)
        below = cells.cut(row.error)
        if state == State.WAITING and not below:
            below = gettext("due %s") % cells.moment(row.due_at)
        return cells.mark(str(state.label), _TONES[state], below=below)
