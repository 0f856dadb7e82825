"""Subscriptions: the list with live state, its actions, the form, the page of a subscription; and
the button *Deliver now*, which is also on alerts and on the page Failures."""

from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, NamedTuple

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.views.main import ORDER_VAR
from django.db.models import Case, IntegerField, QuerySet, Value, When
from django.db.models.expressions import Combinable
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext, gettext_lazy as _, ngettext

from msgplatform import person_limits
from msgplatform.core.connections import RedisError
from msgplatform.core.errors import NotNow
from msgplatform.core.lazy_text import translate_text
from msgplatform.doors.admin import (
    AdminPage,
    AutocompleteFilter,
    ChoiceFilter,
    HealthList,
    ModelAdmin,
    PickFilter,
    ResourceAdmin,
    ResourceForm,
    audit,
    cells,
    sees_personal,
)
from msgplatform.doors.admin.pages import show_page
from msgplatform.messages.filters import MAX_SELECTION
from msgplatform.monitor import failure_groups
from notify import directory, operations
from notify.admin import health, publish, subscription_cells, trials
from notify.admin.sandboxes import ConsumerSandboxes
from notify.models import BizReceive
from notify.monitor.counters import FLOW
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
            with suppress(*directory.UNUSABLE):  # the form is there to correct such a schedule
                patience = subscription_cells.patience(self.instance)
                schedule.help_text = f"{schedule.help_text} {patience}"
        if receive := self.fields.get("receive"):
            # A popup would not show the secret of a new consumer.
            receive.widget.can_add_related = receive.widget.can_change_related = False


class AttentionFilter(PickFilter):
    title = _("needs attention")
    parameter_name = "attention"
    options = (("yes", _("failing, disabled, breaker open or with failures")),)

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[BizReceive]
    ) -> QuerySet[BizReceive]:
        return queryset.filter(health.attention_condition()) if self.value() == "yes" else queryset


class SubscriptionList(HealthList):
    """Subscriptions that need attention first, with the health of each row."""

    read_health = staticmethod(health.read)

    def get_queryset(self, request: HttpRequest, *args: Any, **kwargs: Any) -> QuerySet[BizReceive]:
        attention_rank = Case(
            When(health.attention_condition(), then=Value(0)),
            default=Value(1),
            output_field=IntegerField(),
        )
        self.root_queryset = self.root_queryset.annotate(attention_rank=attention_rank)
        return super().get_queryset(request, *args, **kwargs)

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[BizReceive]) -> list[Any]:
        ordering: list[Any] = list(super().get_ordering(request, queryset))
        return ordering if request.GET.get(ORDER_VAR) else ["attention_rank", *ordering]


# -- pausing, resuming, discarding -----------------------------------------------------------------
# The number of names that the question shows. Further subscriptions are counted.
_MAX_SHOWN = 20


class _StateAction(NamedTuple):
    """An action of the list. `loss_warning`: the deliveries that it loses for good, with which it
    asks for confirmation; '' for an action that loses none."""

    title: Any
    change: operations.StateChange
    permission: str = "operate"
    loss_warning: Any = ""


_STATE_ACTIONS = {
    "pause": _StateAction(_("Pause: hold deliveries"), operations.PAUSE),
    "resume_and_release": _StateAction(_("Resume and send what was held"), operations.RELEASE),
    "resume_and_skip": _StateAction(
        _("Resume and skip what was held"),
        operations.SKIP,
        loss_warning=_("Deliveries that are held now are skipped: they are never sent."),
    ),
    "discard": _StateAction(
        _("Discard: make no deliveries"),
        operations.DISCARD,
        permission="change",
        loss_warning=_(
            "Deliveries that wait are skipped, and new messages are not delivered to it."
        ),
    ),
}


def _list_action(name: str) -> Any:
    """The action as Django's list calls it. The page of a subscription posts to it, too, with
    itself as the only selected row."""
    action = _STATE_ACTIONS[name]

    @admin.action(description=action.title, permissions=[action.permission])
    def change(
        model_admin: ModelAdmin, request: HttpRequest, rows: QuerySet[BizReceive]
    ) -> HttpResponse | None:
        if action.loss_warning and "confirmed" not in request.POST:
            # The form names the rows, so that exactly the shown rows change, even when "all" was
            # selected and further rows were added meanwhile.
            selection = list(rows.select_related("biz", "receive")[: MAX_SELECTION + 1])
            if len(selection) > MAX_SELECTION:
                messages.warning(request, gettext("Select at most %d at a time.") % MAX_SELECTION)
                return None
            return show_page(
                model_admin, request, "notify/confirm.html", gettext("Are you sure?"), action=name,
                heading=action.title, loss_warning=action.loss_warning, rows=selection[:_MAX_SHOWN],
                more=max(0, len(selection) - _MAX_SHOWN), ids=[str(row.pk) for row in selection],
                checkbox=ACTION_CHECKBOX_NAME, back_to=request.POST.get("back_to", ""),
                list=reverse("admin:notify_bizreceive_changelist"),
            )  # fmt: skip
        ids = list(rows.values_list("pk", flat=True))
        count = operations.change_state(ids, action.change, partial(audit, request))
        text = ngettext("%d subscription changed.", "%d subscriptions changed.", count)
        messages.success(request, text % count)
        page_id = request.POST.get("back_to", "")
        return redirect("admin:notify_bizreceive_change", page_id) if page_id.isdigit() else None

    change.__name__ = name
    return change


@person_limits.answers_limited_people
def deliver_now_view(model_admin: ModelAdmin, request: HttpRequest, pk: int) -> HttpResponse:
    """The view of the button: a POST delivers now, and leads to the page `next` with a message."""
    row = model_admin.row_for(request, pk, "operate")
    _deliver_now(request, row)
    next_url = request.POST.get("next", "")
    if url_has_allowed_host_and_scheme(next_url, None):
        return redirect(next_url)
    return redirect("admin:notify_bizreceive_change", pk)


def _deliver_now(request: HttpRequest, row: BizReceive) -> None:
    """Deliver now, and show the outcome or the error as a message."""
    try:
        outcome = operations.deliver_now(row, partial(audit, request))
    except NotNow as error:
        messages.error(request, translate_text(error.args[0]))
        return
    except RedisError:
        messages.error(request, gettext("Redis does not answer: nothing was started. Try again."))
        return
    failures_count = failure_groups.count_by_subject(FLOW, [row.pk]).get(row.pk, 0)
    parts = []
    if outcome.is_probe:
        parts.append(
            gettext("One delivery is tried now; if it succeeds, all that wait follow at once.")
        )
    if outcome.made_due:
        text = ngettext(
            "%d delivery no longer waits for its time.",
            "%d deliveries no longer wait for their time.",
            outcome.made_due,
        )
        parts.append(text % outcome.made_due)
    if outcome.has_more:
        parts.append(gettext("More are waiting: deliver now once more when these are done."))
    parts = parts or [gettext("Nothing waits for a later time.")]
    if failures_count:
        text = ngettext(
            "%d failure is not tried any more: send it again on the page Failures.",
            "%d failures are not tried any more: send them again on the page Failures.",
            failures_count,
        )
        parts.append(text % failures_count)
    messages.success(request, " ".join(parts))


@admin.register(BizReceive)
class BizReceiveAdmin(ResourceAdmin):
    resource = Subscription
    limited_views = frozenset({"changelist_view", "change_view", "add_view"})
    limited_may_change = True
    form = SubscriptionForm
    field_options = {"schedule": {"rows": 9}}
    actions = [_list_action(name) for name in _STATE_ACTIONS]
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
        sees_urls = trials.sees_urls(request)
        return [name for name in self.search_fields if sees_urls or name != "receive__url"]

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
                for attempt, _answer in context["card"]["failures"]:
                    attempt.response_body = ""
        return super().render_change_form(request, context, *args, **kwargs)

    # -- columns ---------------------------------------------------------------------------------
    name = cells.column(_("subscription"), lambda row: str(row), "biz__name")
    rate = cells.column(_("rate limit"), lambda row: cells.per_second(row.rate_limit), "rate_limit")
