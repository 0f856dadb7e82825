"""Policies: list, form, the page of one with its runs; requests for runs."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import redirect
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from crmsync.admin import run_cells
from crmsync.admin.setup import policy_health, policy_trial
from crmsync.admin.setup.policy_form import PolicyForm
from crmsync.models import Policy, Run
from crmsync.monitor import progress
from crmsync.policies import run_requests
from msgplatform.admin import (
    AutocompleteFilter,
    HealthList,
    UndeletableAdmin,
)
from msgplatform.core.errors import InvalidInput, NotNow

_RUNS = 5  # that the page of a policy shows
_VIEWS = {
    "sample": policy_trial.sample_view,
    "dry-run": policy_trial.dry_run_view,
    "fields": policy_trial.fields_view,
}


class PolicyList(HealthList):
    read_health = staticmethod(policy_health.read)


@admin.register(Policy)
class PolicyAdmin(UndeletableAdmin):
    form = PolicyForm
    list_display = ["name", "state", "schedule", "read_up_to", "last_run"]
    list_filter = ["enabled", ("crm", AutocompleteFilter), ("source", AutocompleteFilter)]
    list_filter_submit = True
    list_select_related = ["source", "crm"]
    search_fields = ["source__name", "crm__name"]
    search_help_text = _("Source or CRM")
    sortable_by = ["name"]
    list_before_template = "admin/crmsync/policies_bar.html"
    change_form_outer_before_template = "admin/crmsync/policy_bar.html"
    change_form_after_template = "admin/crmsync/policy_trial.html"
    fieldsets = [
        (None, {"fields": ["source", "crm", "enabled"]}),
        (_("When"), {"fields": ["interval_seconds", "cron", "hours", "sweep_cron", "batch_size"]}),
        (_("What is sent"), {"fields": ["biz", "appkeys", "key_prefix", "mapping"]}),
        (_("Records that people made in the CRM"), {"fields": ["on_conflict", "delete_adopted"]}),
    ]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[HealthList]:
        return PolicyList

    def get_queryset(self, request: HttpRequest) -> QuerySet[Policy]:
        return super().get_queryset(request).select_related("source", "crm")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """A policy's records and its watermark belong to this source and this CRM."""
        return ["source", "crm"] if obj else []

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            path("try/<slug:what>/", wrap(self.try_view), name="crmsync_policy_try_new"),
            path("<int:pk>/try/<slug:what>/", wrap(self.try_view), name="crmsync_policy_try"),
            path("<int:pk>/request/", wrap(self.request_view), name="crmsync_policy_request"),
            *super().get_urls(),
        ]

    def audit_target(self, obj: Policy) -> str:
        return f"{obj} #{obj.pk}"

    def render_change_form(
        self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        row = context.get("original")
        name, url_arguments = (
            ("crmsync_policy_try", [row.pk]) if row else ("crmsync_policy_try_new", [])
        )
        context["try_urls"] = {
            what.replace("-", "_"): reverse(f"admin:{name}", args=[*url_arguments, what])
            for what in _VIEWS
        }
        if row:
            # The same figures as in the list, for one policy.
            health = policy_health.read([row])[row.pk]
            runs = list(Run.objects.filter(policy_id=row.pk)[:_RUNS])
            how_far = progress.of_runs(runs)
            context |= {
                "health": health, "state": policy_health.state(row, health),
                "watermark": policy_health.watermark(health),
                "problem": policy_health.problem(health.facts)
                if health.facts and health.facts.problem else "",
                "runs": [(run, run_cells.progress(run, how_far[run.pk])) for run in runs],
                "kinds": run_requests.kinds(row),
                "may_operate": self.has_operate_permission(request),
            }  # fmt: skip
        return super().render_change_form(request, context, *args, **kwargs)

    # -- trying and running ----------------------------------------------------------------------
    def try_view(self, request: HttpRequest, what: str, pk: int | None = None) -> HttpResponse:
        if what not in _VIEWS:
            raise Http404
        return _VIEWS[what](self, request, pk)

    def request_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Ask for a run; the poller that holds the policy begins it within seconds."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        row = self.get_queryset(request).filter(pk=pk).first()
        if row is None:
            raise Http404(gettext("There is no such policy."))
        if not self.has_operate_permission(request):
            raise PermissionDenied
        kind = request.POST.get("kind", "")
        try:
            run_requests.ask(row, kind, request.user.get_username(), may_name=True)
        except InvalidInput:  # a kind that the page does not offer
            raise Http404 from None
        except NotNow as error:
            messages.warning(request, str(error))
        else:
            messages.success(
                request,
                gettext("A run was asked for (%s); it begins within seconds.")
                % Policy.Kind(kind).label,
            )
        return redirect("admin:crmsync_policy_change", pk)

    # -- columns ---------------------------------------------------------------------------------
    @admin.display(description=_("policy"), ordering="source__name")
    def name(self, row: Policy) -> str:
        return str(row)

    @admin.display(description=_("state"))
    def state(self, row: Any) -> str:
        return policy_health.state(row, row.health)

    @admin.display(description=_("looks for changes"))
    def schedule(self, row: Policy) -> str:
        return policy_health.schedule(row)

    @admin.display(description=_("read up to"))
    def read_up_to(self, row: Any) -> str:
        return policy_health.watermark(row.health)

    @admin.display(description=_("last run"))
    def last_run(self, row: Any) -> str:
        health = row.health
        return run_cells.progress(health.run, health.progress, link=True)
