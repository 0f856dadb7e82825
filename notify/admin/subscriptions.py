"""Subscriptions: the list with live state, the form, the page of a subscription."""

from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.contrib.admin.views.main import ORDER_VAR
from django.db.models import QuerySet
from django.db.models.expressions import Combinable
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext_lazy as _

from msgplatform import person_limits
from msgplatform.doors.admin import (
    AdminPage,
    AutocompleteFilter,
    ChoiceFilter,
    HealthList,
    PickFilter,
    ResourceAdmin,
    ResourceForm,
    cells,
    sees_personal,
)
from notify.admin import health, publish, subscription_cells, trials
from notify.admin.sandboxes import ConsumerSandboxes
from notify.admin.states import StateActions, deliver_now_view
from notify.models import BizReceive
from notify.setup.subscriptions import Subscription
from notify.subscriptions import sandbox

_Status = BizReceive.Status


class SubscriptionForm(ResourceForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        status = self.fields.get("status")
        if isinstance(status, forms.TypedChoiceField):  # only for a new subscription
            status.choices = [(s.value, s.label) for s in (_Status.NORMAL, _Status.PAUSED)]
            status.help_text = _("Paused: deliveries are made and held until it is resumed.")
        if schedule := self.fields.get("schedule"):
            patience = subscription_cells.patience(self.instance)
            schedule.help_text = f"{schedule.help_text} {patience}"
        if receive := self.fields.get("receive"):
            # A popup would not show the secret of a new consumer.
            receive.widget.can_add_related = receive.widget.can_change_related = False


class AttentionFilter(PickFilter):
    title = _("needs attention")
    parameter_name = "attention"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("yes", _("failing, disabled, breaker open or with failures"))]

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[BizReceive]
    ) -> QuerySet[BizReceive]:
        if self.value() != "yes":
            return queryset
        return queryset.filter(health.troubled(health.open_breakers()))


class SubscriptionList(HealthList):
    """Subscriptions that need attention first, with the health of each row."""

    read_health = staticmethod(health.read)

    def get_queryset(self, request: HttpRequest, *args: Any, **kwargs: Any) -> QuerySet[BizReceive]:
        self.root_queryset = health.troubled_first(self.root_queryset, health.open_breakers())
        return super().get_queryset(request, *args, **kwargs)

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[BizReceive]) -> list[Any]:
        ordering: list[Any] = list(super().get_ordering(request, queryset))
        return ordering if request.GET.get(ORDER_VAR) else ["calm", *ordering]


@admin.register(BizReceive)
class BizReceiveAdmin(StateActions, ResourceAdmin):
    resource = Subscription
    limited_views = frozenset({"changelist_view", "change_view", "add_view"})
    limited_may_change = True
    form = SubscriptionForm
    field_options = {"schedule": {"rows": 9}}
    list_class = SubscriptionList
    list_display = [
        "name", subscription_cells.state, subscription_cells.waiting, subscription_cells.oldest_due,
        subscription_cells.in_flight, subscription_cells.breaker, subscription_cells.success,
        subscription_cells.failing, subscription_cells.failed_deliveries, "rate",
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
    sortable_by: ClassVar[Any] = ["name", subscription_cells.failing, "rate"]
    change_form_outer_before_template = "notify/subscription_card.html"
    further_pages = [
        AdminPage("<int:pk>/test/", "notify_bizreceive_test", trials.send_page),
        AdminPage("<int:pk>/filter/", "notify_bizreceive_filter", trials.filter_page),
        *ConsumerSandboxes.pages(),
        AdminPage("publish/", "notify_publish", publish.page),
        AdminPage("<int:pk>/deliver/", "notify_bizreceive_deliver", deliver_now_view, is_post=True),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[BizReceive]:
        return super().get_queryset(request).select_related("biz", "receive")

    def get_ordering(self, request: HttpRequest) -> list[str | Combinable]:
        return ["biz__name", "receive__name"]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        # Later the state is changed by actions, which ask for confirmation and are audited.
        fieldsets = super().get_fieldsets(request, obj)
        head = (None, {"fields": ["biz", "receive", "status"]})
        return fieldsets if obj else [head, *fieldsets[1:]]

    def get_search_fields(self, request: HttpRequest) -> list[str]:
        """The search fields. Only people who may change the consumer's URL search in it: the URL
        may hold a token."""
        may_see = request.user.has_perm("notify.change_receive")
        may_see = may_see and not person_limits.is_limited(request)
        return [name for name in self.search_fields if may_see or name != "receive__url"]

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
            context["card"] = subscription_cells.card(row)
            context["may_operate"] = self.has_operate_permission(request)
            context["is_sandbox"] = sandbox.is_sandbox(row.receive.url)
            if not sees_personal(request):
                for attempt in context["card"]["failures"]:
                    attempt.response_body = ""
        return super().render_change_form(request, context, *args, **kwargs)

    # -- columns ---------------------------------------------------------------------------------
    name = cells.column(_("subscription"), lambda row: str(row), "biz__name")
    rate = cells.column(_("rate limit"), lambda row: cells.per_second(row.rate_limit), "rate_limit")
