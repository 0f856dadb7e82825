"""The console's own pages. They know `core.flows` and no flow by name."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.views.decorators import staff_member_required
from django.contrib.auth.decorators import permission_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods

from msgplatform.console.forms import BulkForm
from msgplatform.core import flows, heartbeats
from msgplatform.core.connections import RedisError
from msgplatform.core.errors import InvalidInput
from msgplatform.models import Alert, AuditLog, BulkJob

SEARCH_LIMIT = 50
MAX_QUERY = 200


def _page(request: HttpRequest, template: str, title: str, **context: Any) -> HttpResponse:
    context = {**admin.site.each_context(request), "title": title, **context}
    return render(request, f"console/{template}", context)


@staff_member_required
@require_GET
def overview(request: HttpRequest) -> HttpResponse:
    """Flows with their backlog, daemons with their heartbeat, open alerts, running bulk jobs."""
    try:
        daemons, redis_problem = heartbeats.alive(), ""
    except RedisError as error:
        daemons, redis_problem = [], str(error)[:200]
    running = {beat.role for beat in daemons}
    expected = {d.command.removeprefix("run_") for flow in flows.all() for d in flow.daemons}
    return _page(
        request,
        "overview.html",
        _("Overview"),
        flows=[(flow, flow.status()) for flow in flows.all()],
        daemons=daemons,
        missing=sorted((expected | {"bulk"}) - running),
        redis_problem=redis_problem,
        alerts=Alert.objects.filter(open_key__isnull=False)[:20],
        jobs=BulkJob.objects.filter(state__in=["pending", "running", "paused"])[:20],
    )


@staff_member_required
@require_GET
def search(request: HttpRequest) -> HttpResponse:
    """Search every flow; the query is in the URL, so a result can be sent to a colleague."""
    query = request.GET.get("q", "").strip()[:MAX_QUERY]
    visible = [flow for flow in flows.all() if request.user.has_perm(flow.permission)]
    hits = [(flow, hit) for flow in visible for hit in flow.search(query, SEARCH_LIMIT)]
    return _page(request, "search.html", _("Search"), query=query, hits=hits, limit=SEARCH_LIMIT)


@staff_member_required
@require_GET
def message(request: HttpRequest, flow_name: str, id: str) -> HttpResponse:
    """The timeline of one message."""
    flow = flows.get(flow_name)
    if flow and not request.user.has_perm(flow.permission):
        raise PermissionDenied
    found = flow.page(id) if flow else None
    if flow is None or found is None:
        raise Http404(_("There is no such message; it may have been deleted by retention."))
    return _page(request, "message.html", _("Message"), flow=flow, message=found)


@staff_member_required
@permission_required("msgplatform.add_bulkjob", raise_exception=True)
@require_http_methods(["GET", "POST"])
def bulk(request: HttpRequest, flow_name: str = "") -> HttpResponse:
    """Choose a filter, see how many messages it means, then start the job."""
    flow = flows.get(flow_name) if flow_name else next(iter(flows.all()), None)
    if flow is None:
        raise Http404(_("There is no such flow."))
    given = request.POST if request.method == "POST" else request.GET
    form = BulkForm(flow, given if given else {})
    count = None
    if form.is_valid():
        try:
            count = flow.requeue_count(form.filter())
        except InvalidInput as error:
            form.add_error(error.field if error.field in form.fields else None, str(error))
    if request.method == "POST" and form.is_valid() and count:
        return _start(request, flow, form, count)
    return _page(
        request,
        "bulk.html",
        _("Bulk requeue"),
        form=form,
        flow=flow,
        flows=flows.all(),
        count=count,
    )


def _start(request: HttpRequest, flow: flows.Flow, form: BulkForm, count: int) -> HttpResponse:
    actor = request.user.get_username()
    job = BulkJob.objects.create(
        flow=flow.name,
        filter=form.filter(),
        total=count,
        rate=form.cleaned_data["rate"] or 0,
        created_by=actor,
    )
    AuditLog.objects.create(
        actor=actor,
        action="bulk_requeue",
        target=f"{flow.name} #{job.pk}",
        detail={"filter": job.filter, "count": count, "rate": job.rate},
    )
    messages.success(request, _("Bulk job started: %d messages will be sent again.") % count)
    return redirect("admin:msgplatform_bulkjob_changelist")
