"""Notify in the console."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.forms import ModelForm
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from msgplatform.admin import ReadOnlyAdmin, UndeletableAdmin, audit
from notify.models import BizMsg, BizReceive, Receive, ReceiveMsg


@admin.register(Receive)
class ReceiveAdmin(UndeletableAdmin):
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
class BizReceiveAdmin(UndeletableAdmin):
    list_display = ["__str__", "status", "event_types", "channels", "in_flight_limit"]
    list_filter = ["status", "biz"]
    list_select_related = ["biz", "receive"]
    autocomplete_fields = ["biz", "receive"]
    actions = ["pause", "resume_and_release", "resume_and_skip", "discard"]

    def save_model(
        self, request: HttpRequest, obj: BizReceive, form: ModelForm, change: bool
    ) -> None:
        super().save_model(request, obj, form, change)
        action = "subscription_changed" if change else "subscription_created"
        audit(request, action, str(obj), fields=sorted(form.changed_data))

    def _set(self, request: HttpRequest, rows: QuerySet[BizReceive], action: str, to: int) -> None:
        for row in rows:
            audit(request, f"subscription_{action}", str(row))
        count = rows.update(status=to)
        messages.success(request, _("%d subscriptions changed.") % count)

    @admin.action(description=_("Pause: hold new copies"), permissions=["change"])
    def pause(self, request: HttpRequest, queryset: QuerySet[BizReceive]) -> None:
        self._set(request, queryset, "paused", BizReceive.Status.PAUSED)

    @admin.action(description=_("Resume and send what was held"), permissions=["change"])
    def resume_and_release(self, request: HttpRequest, queryset: QuerySet[BizReceive]) -> None:
        self._set(request, queryset, "resumed", BizReceive.Status.NORMAL)

    @admin.action(description=_("Resume and skip what was held"), permissions=["change"])
    def resume_and_skip(self, request: HttpRequest, queryset: QuerySet[BizReceive]) -> None:
        self._set(request, queryset, "resumed_skipping", BizReceive.Status.SKIPPING)

    @admin.action(description=_("Discard: make no copies"), permissions=["change"])
    def discard(self, request: HttpRequest, queryset: QuerySet[BizReceive]) -> None:
        self._set(request, queryset, "discarded", BizReceive.Status.DISCARDED)


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


class SubscriptionFilter(admin.RelatedFieldListFilter):
    """Names are read with one query, not with two a subscription."""

    MOST = 500

    def field_choices(self, field: Any, request: HttpRequest, model_admin: admin.ModelAdmin) -> Any:
        rows = BizReceive.objects.select_related("biz", "receive").order_by("biz", "receive")
        return [(row.pk, str(row)) for row in rows[: self.MOST]]


@admin.register(ReceiveMsg)
class ReceiveMsgAdmin(ReadOnlyAdmin):
    list_display = [
        "story", "biz_receive", "status", "send_times", "http_status", "error", "due",
        "updated_at",
    ]  # fmt: skip
    list_filter = ["status", ("biz_receive", SubscriptionFilter)]
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
