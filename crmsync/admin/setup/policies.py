"""Policies: list, form, the page of one with its runs; requests for runs."""

from collections.abc import Sequence
from typing import Any

import msgspec
from django import forms
from django.contrib import admin, messages
from django.db.models import Max, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import formats, timezone
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy as _

from crmsync import presence
from crmsync.admin import runs
from crmsync.admin.setup import policy_trial
from crmsync.models import Policy, Run, Watermark
from crmsync.monitor import backlog
from crmsync.policies import run_requests
from crmsync.setup.policies import PolicyResource
from msgplatform.core.connections import RedisError
from msgplatform.core.durations import age
from msgplatform.core.errors import InvalidInput, NotNow
from msgplatform.doors.admin import (
    AdminPage,
    AutocompleteFilter,
    HealthList,
    ResourceAdmin,
    ResourceForm,
    Textarea,
    cells,
)
from msgplatform.person_limits import answers_limited_people, is_limited


class Health(msgspec.Struct, frozen=True):
    """The state of one policy now. `facts` is None when no poller reports the policy; `is_known`
    is False while Redis is unavailable. `run` is the newest run."""

    facts: presence.PolicyFacts | None
    is_known: bool
    watermark: Watermark | None
    run: Run | None
    progress: backlog.Progress | None


def read_health(rows: Sequence[Policy]) -> dict[int, Health]:
    """Policy id → health: one query to Redis and five to the database for any number of rows."""
    ids = [row.pk for row in rows]
    # The index on (policy, id) finds the newest run of each policy without reading the others.
    newest = Run.objects.filter(policy_id__in=ids).order_by().values("policy_id")
    run_ids = [row["last"] for row in newest.annotate(last=Max("id"))]
    run_by_policy = {run.policy_id: run for run in Run.objects.filter(pk__in=run_ids)}
    progress_by_run = backlog.of_runs(run_by_policy.values())
    watermarks = Watermark.objects.in_bulk(ids)
    try:
        facts, is_known = presence.policies.read_by_id(), True
    except RedisError:
        facts, is_known = {}, False
    return {
        pk: Health(
            facts.get(pk), is_known, watermarks.get(pk), run_by_policy.get(pk),
            progress_by_run[run_by_policy[pk].pk] if pk in run_by_policy else None,
        )
        for pk in ids
    }  # fmt: skip


# Each cell takes a row with its `health`.
@admin.display(description=_("state"))
def state(row: Any) -> SafeString:
    """The state of the policy, with the reason why it does nothing."""
    health: Health = row.health
    if not row.enabled:
        return cells.enabled(False)
    if not row.crm.enabled:
        return cells.mark(gettext("waits"), "plain", below=gettext("its CRM is switched off"))
    if row.crm.paused_at:
        return cells.mark(gettext("waits"), "bad", below=gettext("its CRM is paused"))
    if row.is_stopped:
        return cells.mark(gettext("stopped"), "bad", below=stop_text(row))
    if row.requested:
        kind = Policy.Kind(row.requested).label
        return cells.mark(gettext("asked for"), "warn", below=str(kind))
    if not health.is_known:
        return cells.unknown()
    if health.facts is None:
        return cells.mark(gettext("not served"), "warn", below=gettext("no poller reports it"))
    if health.facts.problem:
        return cells.mark(gettext("cannot be read"), "bad", below=problem_text(health.facts))
    return cells.mark(gettext("working"), "good")


def problem_text(facts: presence.PolicyFacts) -> str:
    """The reason why the source cannot be read, and for how long it has not been."""
    return gettext("%(why)s (for %(time)s)") % {
        "why": facts.problem,
        "time": age(facts.problem_for),
    }


def stop_text(row: Policy) -> str:
    return gettext("%(removals)s of %(records)s records would be deleted or cleared") % {
        "removals": formats.number_format(row.stopped_removals, force_grouping=True),
        "records": formats.number_format(row.stopped_records, force_grouping=True),
    }


@admin.display(description=_("read up to"))
def read_up_to(row: Any) -> str:
    """The place up to which the source was read, and when that moved last."""
    mark = row.health.watermark
    if mark is None:
        return cells.NOTHING
    time_since_move = age(max(0.0, (timezone.now() - mark.moved_at).total_seconds()))
    return cells.lines(mark.update_time[:19], gettext("moved %s ago") % time_since_move)


@admin.display(description=_("looks for changes"))
def schedule(row: Policy) -> str:
    """The interval of looks for changes; below the hours, and the zone of times."""
    often = row.cron or gettext("every %s") % age(row.interval_seconds).replace(".0", "")
    zone = timezone.get_default_timezone_name() if row.cron or row.hours else ""
    return cells.lines(often, f"{row.hours} {zone}".strip())


_RUNS = 5  # that the page of a policy shows
_VIEWS = {
    "sample": policy_trial.sample_view,
    "dry-run": policy_trial.dry_run_view,
    "fields": policy_trial.fields_view,
}


class MappingField(forms.CharField):
    def __init__(self, **options: Any) -> None:
        widget = Textarea({"rows": 12, "class": "lines", "spellcheck": "false",
                           "placeholder": "LastName = name\nEmail = extra.email"})  # fmt: skip
        super().__init__(max_length=20_000, strip=False, widget=widget, **options)


class PolicyForm(ResourceForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("source", "crm"):
            if name in self.fields:
                # No pencil beside the choice: it would open another form over a half-filled one.
                self.fields[name].widget.can_change_related = False
                self.fields[name].widget.can_view_related = False
        for name in ("cron", "hours", "sweep_cron"):
            if name in self.fields:
                # Name the zone of the times: the reader's own zone may be another one.
                self.fields[name].help_text = gettext("Times in %(zone)s. %(help)s") % {
                    "zone": timezone.get_default_timezone_name(),
                    "help": self.fields[name].help_text,
                }


class PolicyList(HealthList):
    read_health = staticmethod(read_health)

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        can_open_run = request.user.has_perm("crmsync.view_run") and not is_limited(request)
        for row in self.result_list:
            row.can_open_run = can_open_run


@admin.register(Policy)
class PolicyAdmin(ResourceAdmin):
    resource = PolicyResource
    system_lookup = "biz"
    limited_views = frozenset({"changelist_view", "change_view"})
    form = PolicyForm
    form_fields = {"mapping": MappingField}
    list_class = PolicyList
    list_display = ["name", state, schedule, read_up_to, "last_run"]
    list_filter = ["enabled", ("crm", AutocompleteFilter), ("source", AutocompleteFilter)]
    list_filter_submit = True
    list_select_related = ["source", "crm"]
    search_fields = ["source__name", "crm__name"]
    search_help_text = _("Source or CRM")
    sortable_by = ["name"]
    list_before_template = "admin/crmsync/policies_bar.html"
    change_form_outer_before_template = "admin/crmsync/policy_bar.html"
    change_form_after_template = "admin/crmsync/policy_trial.html"
    further_pages = [
        AdminPage("try/<slug:what>/", "crmsync_policy_try", "try_view", is_post=True),
        AdminPage("<int:pk>/try/<slug:what>/", "crmsync_policy_try", "try_view", is_post=True),
        AdminPage("<int:pk>/request/", "crmsync_policy_request", "request_view", is_post=True),
        AdminPage("<int:pk>/removals/", "crmsync_policy_removals", "decide_view", is_post=True),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Policy]:
        return super().get_queryset(request).select_related("source", "crm")

    def render_change_form(
        self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        row = context.get("original")
        row_ids = [row.pk] if row else []
        context["try_urls"] = {
            what.replace("-", "_"): reverse("admin:crmsync_policy_try", args=[*row_ids, what])
            for what in _VIEWS
        }
        if row:
            # The same figures as in the list, for one policy.
            row.health = health = read_health([row])[row.pk]
            rows = list(Run.objects.filter(policy_id=row.pk)[:_RUNS])
            progress_by_run = backlog.of_runs(rows)
            context |= {
                "health": health, "state": state(row),
                "watermark": read_up_to(row),
                "problem": problem_text(health.facts)
                if health.facts and health.facts.problem else "",
                "runs": [(run, runs.progress_cell(run, progress_by_run[run.pk])) for run in rows],
                "kinds": run_requests.kinds(row),
                "may_operate": self.has_operate_permission(request),
                "stop": stop_text(row) if row.stopped_at else "",
            }  # fmt: skip
        return super().render_change_form(request, context, *args, **kwargs)

    # -- trying and running ----------------------------------------------------------------------
    def try_view(self, request: HttpRequest, what: str, pk: int | None = None) -> HttpResponse:
        if what not in _VIEWS:
            raise Http404
        return _VIEWS[what](self, request, pk)

    @answers_limited_people
    def request_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Ask for a run; the poller that holds the policy begins it within seconds."""
        row: Policy = self.row_for(request, pk, "operate")
        kind = request.POST.get("kind", "")
        try:
            run_requests.ask(row, kind, request.user.get_username(), may_name=True)
        except InvalidInput:  # a kind that the page does not offer
            raise Http404 from None
        except NotNow as error:
            messages.warning(request, str(error))
        else:
            words = gettext("A run was asked for (%s); it begins within seconds.")
            messages.success(request, words % Policy.Kind(kind).label)
        return redirect("admin:crmsync_policy_change", pk)

    @answers_limited_people
    def decide_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Confirm or refuse removals that the guard has stopped."""
        row: Policy = self.row_for(request, pk, "operate")
        decision, removals = request.POST.get("decision"), request.POST.get("removals", "")
        if decision not in Policy.Decision.values or not removals.isdecimal():
            raise Http404  # a decision that the page does not offer
        try:
            run_requests.decide(
                row, Policy.Decision(decision), int(removals[:18]), request.user.get_username()
            )
        except NotNow as error:
            messages.warning(request, str(error))
        else:
            is_confirmed = decision == Policy.Decision.CONFIRMED
            messages.success(
                request,
                gettext("Confirmed: the CRM gets the removals.") if is_confirmed
                else gettext("Refused: the CRM keeps what it has."),
            )  # fmt: skip
        return redirect("admin:crmsync_policy_change", pk)

    # -- columns ---------------------------------------------------------------------------------
    name = cells.column(_("policy"), str, "source__name")
    last_run = cells.column(
        _("last run"),
        lambda row: runs.last_run(row.health.run, row.health.progress, row.can_open_run),
    )
