"""Subscriptions: the list with its live state, the form, the page of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.db.models.expressions import Combinable
from django.forms import ModelForm
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from msgplatform.admin import (
    AutocompleteFilter,
    ChoiceFilter,
    UndeletableAdmin,
    audit,
    cells,
)
from msgplatform.admin.fields import LinesField, WaitsField, each
from msgplatform.core.errors import Unavailable
from notify import directory
from notify.admin import dashboard, health, reports, subscription_cells
from notify.admin.consumers import shown_url
from notify.admin.states import StateActions
from notify.admin.subscription_list import AttentionFilter, SubscriptionList
from notify.models import BizReceive, default_schedule
from notify.sender import test_send
from notify.subscriptions import limits

_Status = BizReceive.Status


class SubscriptionForm(forms.ModelForm):  # type: ignore[type-arg]  # it takes none at run time
    event_types = LinesField(
        label=_("Event types"),
        check=each(limits.event_types),
        help_text=_("Patterns, one a line: order.* or stock.empty. Empty: every event type"),
    )
    channels = LinesField(
        label=_("Channels"),
        check=each(limits.channels),
        help_text=_("Exact names, one a line. Empty: every channel"),
    )
    schedule = WaitsField(
        label=_("Retry schedule"),
        check=each(limits.schedule),
        initial=default_schedule,
        rows=9,
        help_text=_(
            "How long to wait after each failed attempt, one a line: 5 s, 30 min, 2 h, 1 d"
        ),
    )

    class Meta:
        model = BizReceive
        fields = [
            "biz", "receive", "status", "event_types", "channels", "timeout", "schedule",
            "attempts_limit", "in_flight_limit", "rate_limit", "own_process",
        ]  # fmt: skip

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        status = self.fields.get("status")
        if isinstance(status, forms.TypedChoiceField):  # only when it is made
            status.choices = [(s.value, s.label) for s in (_Status.NORMAL, _Status.PAUSED)]
            status.help_text = _("Paused: deliveries are made and held until it is resumed.")
        if receive := self.fields.get("receive"):
            # A consumer made in a popup would have its secret shown to nobody.
            receive.widget.can_add_related = receive.widget.can_change_related = False


@admin.register(BizReceive)
class BizReceiveAdmin(StateActions, UndeletableAdmin):
    form = SubscriptionForm
    list_display = [
        "name", "state", "waiting", "oldest_due", "in_flight", "breaker", "success", "failing",
        "rate",
    ]  # fmt: skip
    list_filter = [
        AttentionFilter, ("status", ChoiceFilter), ("biz", AutocompleteFilter),
        ("receive", AutocompleteFilter),
    ]  # fmt: skip
    list_filter_submit = True
    list_before_template = "notify/subscriptions_bar.html"
    search_fields = ["biz__name", "biz__title", "receive__name", "receive__title", "receive__url"]
    search_help_text = _("System, consumer or URL")
    autocomplete_fields = ["biz", "receive"]
    # Cells that are read for the rows of the page cannot sort the list.
    sortable_by = ["name", "failing", "rate"]
    change_form_outer_before_template = "notify/subscription_card.html"
    fieldsets = [
        (None, {"fields": ["biz", "receive"]}),
        (_("What it gets"), {"fields": ["event_types", "channels"]}),
        (_("Attempts"), {"fields": ["schedule", "attempts_limit", "timeout"]}),
        (_("Pace"), {"fields": ["in_flight_limit", "rate_limit", "own_process"]}),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[BizReceive]:
        return super().get_queryset(request).select_related("biz", "receive")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return SubscriptionList

    def get_ordering(self, request: HttpRequest) -> list[str | Combinable]:
        return ["biz__name", "receive__name"]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        # Later the state is changed by actions, which ask for confirmation and are audited.
        head = (None, {"fields": ["biz", "receive", "status"]})
        return self.fieldsets if obj else [head, *self.fieldsets[1:]]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return ["biz", "receive"] if obj else []  # they name the queue and the deliveries

    def save_model(
        self, request: HttpRequest, obj: BizReceive, form: ModelForm[BizReceive], change: bool
    ) -> None:
        # One transaction: nothing is changed without its line in the audit log.
        with transaction.atomic():
            super().save_model(request, obj, form, change)
            action = "subscription_changed" if change else "subscription_created"
            audit(request, action, f"{obj} #{obj.pk}", **_changes(form, obj, change))

    # -- pages -----------------------------------------------------------------------------------
    def get_search_fields(self, request: HttpRequest) -> list[str]:
        """The consumer's URL may hold a token, so it is searched by those who may change it."""
        may_see = request.user.has_perm("notify.change_receive")
        return [name for name in self.search_fields if may_see or name != "receive__url"]

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            path("<int:pk>/test/", wrap(self.test_view), name="notify_bizreceive_test"),
            path("statistics/", wrap(reports.page(self)), name="notify_statistics"),
            path("statistics.csv", wrap(reports.as_csv(self)), name="notify_statistics_csv"),
            *super().get_urls(),
        ]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return super().changelist_view(
            request, {"title": _("Subscriptions")} | (extra_context or {})
        )

    def render_change_form(
        self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        if row := context.get("original"):
            context["card"] = dashboard.card(row)
        return super().render_change_form(request, context, *args, **kwargs)

    def test_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """One signed request now; its answer on a page of its own."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        row = self.get_queryset(request).filter(pk=pk).first()
        if row is None:
            raise Http404(gettext("There is no such subscription."))
        if not self.has_change_permission(request, row):
            raise PermissionDenied
        # Before it is sent: if the process dies in between, it is known who tried.
        audit(request, "subscription_tested", f"{row} #{row.pk}")
        outcome, refused = None, ""
        try:
            outcome = test_send.send(row)
        except Unavailable:
            refused = gettext("Other test sends wait for their answers; try again in a moment.")
        except directory.UNUSABLE as error:
            refused = str(error)
        context = {
            **self.admin_site.each_context(request),
            "title": gettext("Test send"), "opts": self.opts, "row": row, "outcome": outcome,
            "refused": refused,
        }  # fmt: skip
        if outcome:
            may_see = request.user.has_perm("notify.change_receive")
            context["url"] = outcome.url if may_see else shown_url(outcome.url)
        return TemplateResponse(request, "notify/test_send.html", context)

    # -- columns ---------------------------------------------------------------------------------
    @admin.display(description=_("subscription"), ordering="biz__name")
    def name(self, row: BizReceive) -> str:
        return str(row)

    @admin.display(description=_("state"))
    def state(self, row: BizReceive) -> str:
        return subscription_cells.status(row, health.why(row))

    @admin.display(description=_("waiting"))
    def waiting(self, row: Any) -> str:
        return subscription_cells.waiting(row.health)

    @admin.display(description=_("due for"))
    def oldest_due(self, row: Any) -> str:
        return subscription_cells.due(row.health)

    @admin.display(description=_("in flight"))
    def in_flight(self, row: Any) -> str:
        return subscription_cells.in_flight(row, row.health)

    @admin.display(description=_("breaker"))
    def breaker(self, row: Any) -> str:
        return subscription_cells.breaker(row.health)

    @admin.display(description=_("last hour"))
    def success(self, row: Any) -> str:
        return subscription_cells.success(row.health)

    @admin.display(description=_("failing for"), ordering="failing_since")
    def failing(self, row: BizReceive) -> str:
        return subscription_cells.failing(row)

    @admin.display(description=_("rate limit"), ordering="rate_limit")
    def rate(self, row: BizReceive) -> str:
        return cells.per_second(row.rate_limit)


def _changes(form: ModelForm[BizReceive], obj: BizReceive, change: bool) -> dict[str, Any]:
    """Fields with their values before and after; there is no secret among them."""
    fields = sorted(form.changed_data)
    if not change:
        return {"fields": fields}
    before: Mapping[str, Any] = form.initial
    return {
        "fields": fields,
        "before": {name: before.get(name) for name in fields},
        "after": {name: getattr(obj, name) for name in fields},
    }
