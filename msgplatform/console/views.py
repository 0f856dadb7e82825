"""The console's own pages. They use `core.flows` and name no flow."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.views.decorators import staff_member_required
from django.contrib.auth.decorators import permission_required
from django.core import signing
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.http import content_disposition_header
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods

from msgplatform.console import condition
from msgplatform.console.forms import BulkForm, FilterForm
from msgplatform.core import flows
from msgplatform.core.errors import InvalidInput, Unavailable
from msgplatform.models import AuditLog, BulkJob

SEARCH_LIMIT = 50
MAX_QUERY = 200
ALERTS_SHOWN = 20
_SALT = "msgplatform.console.bulk-preview"


def _page(request: HttpRequest, template: str, title: str, **context: Any) -> HttpResponse:
    context = {**admin.site.each_context(request), "title": title, **context}
    return render(request, f"console/{template}", context)


@staff_member_required
@require_GET
def overview(request: HttpRequest) -> HttpResponse:
    """Flows with their backlog, daemons with their heartbeat, open alerts, running bulk jobs.

    The page says that nothing needs attention only if that holds for all of it, not just for
    alerts.
    """
    found = condition.look()
    shown = [(flow, flow.status()) for flow in flows.all()]
    return _page(
        request,
        "overview.html",
        _("Overview"),
        flows=shown,
        daemons=found.daemons,
        missing=found.missing,
        redis_problem=found.redis_problem,
        alerts=condition.open_alerts()[:ALERTS_SHOWN],
        more_alerts=max(0, found.alerts - ALERTS_SHOWN),
        is_calm=not found.number and not any(status.problem for _flow, status in shown),
        jobs=BulkJob.objects.filter(state__in=["pending", "running", "paused"])[:20],
    )


@staff_member_required
@require_GET
def search(request: HttpRequest) -> HttpResponse:
    """Search every flow; the query is in the URL, so a result can be sent to a colleague."""
    # Cut here as well: a form's maxlength binds nobody who writes the URL.
    query = request.GET.get("q", "").strip()[:MAX_QUERY]
    visible = _visible(request)
    hits = [(flow, hit) for flow in visible for hit in flow.search(query, SEARCH_LIMIT)]
    return _page(
        request,
        "search.html",
        _("Search"),
        query=query,
        hits=hits,
        limit=SEARCH_LIMIT,
        notices=[notice for flow in visible if query and (notice := flow.notice())],
        searchable=[flow for flow in visible if flow.search_fields],
    )


@staff_member_required
@require_GET
def find(request: HttpRequest, flow_name: str) -> HttpResponse:
    """Search one flow by its fields, page by page; the filter and the page are in the URL."""
    flow = flows.get(flow_name)
    if flow is None or not flow.search_fields:
        raise Http404(_("There is no such flow."))
    _require(request, flow)
    form = FilterForm(flow.search_fields, request.GET or None)
    found = None
    if form.is_valid():
        try:
            found = flow.find(form.filter(), request.GET.get("cursor", ""), SEARCH_LIMIT)
        except InvalidInput as error:
            form.refuse(error.field, str(error))
    following = ""
    if found and found.cursor:
        query = request.GET.copy()
        query["cursor"] = found.cursor
        following = f"?{query.urlencode()}"
    return _page(
        request,
        "search.html",
        _("Search"),
        flow=flow,
        form=form,
        found=found,
        hits=[(flow, hit) for hit in found.hits] if found else [],
        notices=[found.notice] if found and found.notice else [],
        next=following,
        searchable=[flow for flow in _visible(request) if flow.search_fields],
    )


def _visible(request: HttpRequest) -> list[flows.Flow]:
    return [flow for flow in flows.all() if request.user.has_perm(flow.permission)]


def _require(request: HttpRequest, flow: flows.Flow) -> None:
    if not request.user.has_perm(flow.permission):
        raise PermissionDenied


@staff_member_required
@require_GET
def message(request: HttpRequest, flow_name: str, id: str) -> HttpResponse:
    """The timeline of one message."""
    flow = _flow(request, flow_name)
    try:
        found = flow.page(id)
    except Unavailable as error:
        return _unavailable(request, flow, error)
    if found is None:
        raise _missing()
    return _page(request, "message.html", _("Message"), flow=flow, message=found)


@staff_member_required
@require_GET
def content(request: HttpRequest, flow_name: str, id: str) -> HttpResponse:
    """The whole content of one message, as a file; its page shows only the beginning of a long
    one."""
    flow = _flow(request, flow_name)
    try:
        found = flow.file(id)
    except Unavailable as error:
        return _unavailable(request, flow, error)
    if found is None:
        raise _missing()
    # As an attachment (and with Django's X-Content-Type-Options) the browser never runs it.
    name = content_disposition_header(as_attachment=True, filename=found.name)
    return HttpResponse(
        found.content, content_type=found.media_type, headers={"Content-Disposition": name}
    )


def _flow(request: HttpRequest, name: str) -> flows.Flow:
    flow = flows.get(name)
    if flow is None:
        raise Http404(_("There is no such flow."))
    _require(request, flow)
    return flow


def _unavailable(request: HttpRequest, flow: flows.Flow, error: Unavailable) -> HttpResponse:
    answer = _page(request, "message.html", _("Message"), flow=flow, notice=str(error))
    answer.status_code = 503
    return answer


def _missing() -> Http404:
    return Http404(_("There is no such message; it may have been deleted by retention."))


@staff_member_required
@permission_required("msgplatform.add_bulkjob", raise_exception=True)
@require_http_methods(["GET", "POST"])
def bulk(request: HttpRequest, flow_name: str = "") -> HttpResponse:
    """Choose an action, a filter and a rate, see how many messages they match, then start the job.

    Only what was previewed is started: if anything changed since, the page shows a new preview.
    """
    # The permission for bulk jobs alone is not enough: it needs that of the flow's messages too.
    able = [flow for flow in _visible(request) if flow.bulk_actions]
    if not able:
        raise PermissionDenied
    flow = flows.get(flow_name) if flow_name else able[0]
    if flow is None or not flow.bulk_actions:
        raise Http404(_("There is no such flow."))
    _require(request, flow)
    given = request.POST if request.method == "POST" else request.GET
    name = given.get("action") or next(iter(flow.bulk_actions))
    if name not in flow.bulk_actions:
        raise Http404(_("There is no such bulk action."))
    # A link may bring a filled form (`ids=…`) without asking for its count, which may take a while.
    asked = request.method == "POST" or "count" in given
    form = BulkForm(flow.bulk_actions[name], given or None)
    counted = _counted(flow, name, form) if asked and form.is_valid() else None
    starts = counted is not None and counted.count > 0 and "start" in request.POST
    if counted and starts and _previewed(request) == _wanted(flow, name, form):
        return _start(request, flow, name, form, counted)
    return _page(
        request,
        "bulk.html",
        _("Bulk jobs"),
        form=form,
        flow=flow,
        flows=able,
        name=name,
        action=flow.bulk_actions[name],
        counted=counted,
        changed=starts,
        # Signed, not stored: the start proves by it which filter the person has seen the count of.
        previewed=signing.dumps(_wanted(flow, name, form), salt=_SALT) if counted else "",
    )


def _previewed(request: HttpRequest) -> Any:
    """What the preview showed from which this start comes; None without one."""
    try:
        return signing.loads(request.POST.get("previewed", ""), salt=_SALT)
    except signing.BadSignature:
        return None


def _wanted(flow: flows.Flow, name: str, form: BulkForm) -> list[Any]:
    """What a start would run, as JSON values."""
    return [flow.name, name, form.filter(), form.pace]


def _counted(flow: flows.Flow, name: str, form: BulkForm) -> flows.Counted | None:
    try:
        return flow.bulk_count(name, form.filter())
    except InvalidInput as error:
        form.refuse(error.field, str(error))
    except Unavailable as error:
        form.refuse("", str(error))
    return None


def _start(
    request: HttpRequest, flow: flows.Flow, name: str, form: BulkForm, counted: flows.Counted
) -> HttpResponse:
    actor = request.user.get_username()
    job = BulkJob.objects.create(
        flow=flow.name,
        action=name,
        filter=form.filter(),
        total=counted.count,
        rate=form.pace,
        created_by=actor,
    )
    AuditLog.objects.create(
        actor=actor,
        action=f"bulk_{name}",
        target=f"{flow.name} #{job.pk}",
        detail={
            "filter": job.filter,
            "count": counted.count,
            "more": counted.more,
            "rate": job.rate,
        },
    )
    messages.success(request, _("Bulk job started: %s.") % flow.bulk_actions[name].title)
    return redirect("admin:msgplatform_bulkjob_changelist")
