"""Messages and their deliveries: lists of any size.

Both tables are hot, so the lists stay on indexes: rows are found first, what they refer to is read
for the rows of the page only, the order is that of the ids, and a time is a range of ids.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from msgplatform.admin import (
    AutocompleteFilter,
    ChoiceFilter,
    IdTimeFilter,
    ReadOnlyAdmin,
    audit,
    audit_messages,
    cells,
    row_id,
)
from msgplatform.api.filters import MAX_SELECTION
from msgplatform.core.data import sql
from msgplatform.messages import engine
from notify.actions.deliveries import FINAL, resend_selection
from notify.messages.index import MESSAGES
from notify.models import BizMsg, BizReceive, ReceiveMsg

_Delivery = ReceiveMsg.Status
_TONES = {
    _Delivery.DELIVERED: "good",
    _Delivery.EXHAUSTED: "bad",
    _Delivery.POISON: "bad",
    _Delivery.HELD: "warn",
    _Delivery.SKIPPED: "plain",
    _Delivery.PENDING: "plain",
    _Delivery.QUEUED: "plain",
}
_FOUND = 500  # what a search shows at most


def of_subscriptions(rows: QuerySet[ReceiveMsg], ids: list[int]) -> QuerySet[ReceiveMsg]:
    """Their deliveries. The index begins with the status; naming every status makes it usable."""
    return rows.filter(status__in=list(_Delivery), biz_receive_id__in=ids)


class SubscriptionFilter(AutocompleteFilter):
    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        chosen = row_id(self.value())
        return queryset if chosen is None else of_subscriptions(queryset, [chosen])


class SystemFilter(AutocompleteFilter):
    """By the subscriptions of the system, which itself is in no index of deliveries."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        chosen = row_id(self.value())
        if chosen is None:
            return queryset
        subscriptions = BizReceive.objects.filter(biz_id=chosen)
        return of_subscriptions(queryset, list(subscriptions.values_list("pk", flat=True)))


class OwnerFilter(AutocompleteFilter):
    """By the system, from where a page begins: see `BizMsgAdmin.get_ordering`."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        chosen = row_id(self.value())
        return queryset if chosen is None else sql.of_one(queryset, "biz_id", chosen)


class HotAdmin(ReadOnlyAdmin):
    """A list of a hot table."""

    # A join makes MariaDB read and sort the whole table before it cuts the page.
    list_select_related = ()
    # The timeline of a message is the page of a row; a form would have nothing to say.
    list_display_links = None
    list_filter_submit = True
    sortable_by = ()


@admin.register(BizMsg)
class BizMsgAdmin(HotAdmin):
    list_display = ["timeline", "system", "event_type", "channel", "state_mark", "created_at"]
    list_filter = [
        ("state", ChoiceFilter), ("biz", OwnerFilter), ("id", IdTimeFilter),
    ]  # fmt: skip
    search_fields = ["id"]
    search_help_text = _("Message id, delivery id, key or event type")

    def get_queryset(self, request: HttpRequest) -> QuerySet[BizMsg]:
        return super().get_queryset(request).defer("payload").prefetch_related("biz")

    def get_ordering(self, request: HttpRequest) -> list[Any]:
        """All columns of the index that is read, so that no database sorts."""
        of_one = row_id(request.GET.get("biz__id__exact")) is not None
        return ["-biz_id", "-id"] if of_one else ["-id"]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[BizMsg], search_term: str
    ) -> tuple[QuerySet[BizMsg], bool]:
        if not search_term.strip():
            return queryset, False
        return queryset.filter(pk__in=_message_ids(search_term)), False

    @admin.display(description=_("message"))
    def timeline(self, message: BizMsg) -> str:
        return cells.message_link("notify", message.pk)

    @admin.display(description=_("system"))
    def system(self, message: BizMsg) -> str:
        return str(message.biz)

    @admin.display(description=_("state"))
    def state_mark(self, message: BizMsg) -> str:
        state = BizMsg.State(message.state)
        return cells.mark(str(state.label), "good" if state == BizMsg.State.SPLIT else "plain")


@admin.register(ReceiveMsg)
class ReceiveMsgAdmin(HotAdmin):
    list_display = [
        "timeline", "subscription", "status_mark", "send_times", "answer", "due", "updated_at",
    ]  # fmt: skip
    list_filter = [
        ("status", ChoiceFilter), ("biz", SystemFilter), ("biz_receive", SubscriptionFilter),
        ("id", IdTimeFilter),
    ]  # fmt: skip
    search_fields = ["id"]
    search_help_text = _("Delivery id, message id, key or event type")
    actions = ["send_again"]
    fields = [
        "timeline", "subscription", "status_mark", "send_times", "due", "generation",
        "http_status", "error", "created_at", "updated_at",
    ]  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[ReceiveMsg]:
        rows = super().get_queryset(request)
        return rows.prefetch_related("biz_receive__biz", "biz_receive__receive")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[ReceiveMsg], search_term: str
    ) -> tuple[QuerySet[ReceiveMsg], bool]:
        text = search_term.strip()
        if not text:
            return queryset, False
        # The delivery of this id, or else those of the messages that are found.
        number = row_id(text)
        if number is not None and ReceiveMsg.objects.filter(pk=number).exists():
            return queryset.filter(pk__in=[number]), False
        of_messages = ReceiveMsg.objects.filter(msg_id__in=_message_ids(text))
        ids = list(of_messages.values_list("pk", flat=True)[:_FOUND])
        return queryset.filter(pk__in=ids), False

    @admin.action(description=_("Send again"), permissions=["operate"])
    def send_again(
        self, request: HttpRequest, queryset: QuerySet[ReceiveMsg]
    ) -> HttpResponse | None:
        ids = list(queryset.order_by().values_list("pk", flat=True)[: MAX_SELECTION + 1])
        if len(ids) > MAX_SELECTION:
            messages.warning(
                request,
                gettext("More than %d are selected: use a bulk job, which can be paced and "
                        "stopped.") % MAX_SELECTION,
            )  # fmt: skip
            return redirect("console:bulk-flow", "notify")
        final = ReceiveMsg.objects.filter(pk__in=ids, status__in=FINAL)
        of_messages = sorted(set(final.values_list("msg_id", flat=True)))
        count = resend_selection(ids)
        audit(request, "deliveries_sent_again", str(count), ids=[str(pk) for pk in ids])
        audit_messages(request, "notify", of_messages)
        text = ngettext("%d delivery is sent again.", "%d deliveries are sent again.", count)
        messages.success(request, text % count)
        if left := len(ids) - count:
            text = ngettext(
                "%d was left alone: only what has ended is sent again.",
                "%d were left alone: only what has ended is sent again.",
                left,
            )
            messages.info(request, text % left)
        return None

    @admin.display(description=_("message"))
    def timeline(self, delivery: ReceiveMsg) -> str:
        return cells.message_link("notify", delivery.msg_id)

    @admin.display(description=_("subscription"))
    def subscription(self, delivery: ReceiveMsg) -> str:
        return str(delivery.biz_receive)

    @admin.display(description=_("status"))
    def status_mark(self, delivery: ReceiveMsg) -> str:
        status = _Delivery(delivery.status)
        return cells.mark(str(status.label), _TONES[status])

    @admin.display(description=_("answer"))
    def answer(self, delivery: ReceiveMsg) -> str:
        if delivery.http_status:
            return f"HTTP {delivery.http_status}"
        return delivery.error or cells.NOTHING

    @admin.display(description=_("next attempt"))
    def due(self, delivery: ReceiveMsg) -> Any:
        return delivery.next_attempt_at


def _message_ids(text: str) -> list[int]:
    """What the search of the console finds; it names messages by any id, key or event type."""
    return [int(hit.id) for hit in engine.search(MESSAGES, text, _FOUND) if not hit.link]
