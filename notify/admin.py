"""Notify in the console."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.forms import ModelForm
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from msgplatform.admin import ModelAdmin, ReadOnlyAdmin, audit
from notify.models import BizMsg, BizReceive, Receive, ReceiveMsg


@admin.register(Receive)
class ReceiveAdmin(ModelAdmin):
    list_display = ["name", "title", "url", "created_at"]
    search_fields = ["name", "title", "url"]

    def save_model(self, request: HttpRequest, obj: Receive, form: ModelForm, change: bool) -> None:
        super().save_model(request, obj, form, change)
        if not change:
            audit(request, "consumer_created", obj.name, url=obj.url)
            messages.warning(
                request,
                _("The signing secret is shown this once; give it to the consumer: %(secret)s")
                % {"secret": obj.secret},
            )


@admin.register(BizReceive)
class BizReceiveAdmin(ModelAdmin):
    list_display = ["__str__", "status", "timeout", "in_flight_limit", "created_at"]
    list_filter = ["status", "biz"]
    list_select_related = ["biz", "receive"]
    autocomplete_fields = ["biz", "receive"]


@admin.register(BizMsg)
class BizMsgAdmin(ReadOnlyAdmin):
    list_display = ["story", "biz", "event_type", "channel", "state", "created_at"]
    list_filter = ["state", "biz"]
    list_select_related = ["biz"]
    list_display_links = None
    search_fields = ["=id", "=event_type"]
    search_help_text = _("A message id, or an exact event type")

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).defer("payload")

    @admin.display(description=_("message"), ordering="id")
    def story(self, message: BizMsg) -> str:
        return _story_link(message.pk, str(message.pk))


@admin.register(ReceiveMsg)
class ReceiveMsgAdmin(ReadOnlyAdmin):
    list_display = [
        "story", "biz_receive", "status", "send_times", "http_status", "error", "due",
        "updated_at",
    ]  # fmt: skip
    list_filter = ["status", "biz_receive"]
    list_select_related = ["biz_receive__biz", "biz_receive__receive"]
    list_display_links = None
    search_fields = ["=id", "=msg_id"]
    search_help_text = _("A delivery id or a message id")

    @admin.display(description=_("next attempt"), ordering="next_at")
    def due(self, copy: ReceiveMsg) -> Any:
        return copy.next_at if copy.status == ReceiveMsg.Status.PENDING else None

    @admin.display(description=_("message"), ordering="msg_id")
    def story(self, copy: ReceiveMsg) -> str:
        return _story_link(copy.msg_id, str(copy.msg_id))


def _story_link(message_id: int, text: str) -> str:
    url = reverse("console:message", args=["notify", str(message_id)])
    return format_html(
        '<a class="text-primary-600 dark:text-primary-500" href="{}">{}</a>', url, text
    )
