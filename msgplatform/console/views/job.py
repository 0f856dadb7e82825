"""One bulk job: how far it is, what became of what it sent again, pause, resume and cancel."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import messages
from django.contrib.admin.views.decorators import staff_member_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from msgplatform.admin import audit, sees_personal
from msgplatform.console.forms import BulkForm
from msgplatform.console.views.page import job_of, page, require, require_job
from msgplatform.core import flows, personal
from msgplatform.jobs import outcomes
from msgplatform.models import BulkJob

_State = BulkJob.State


@staff_member_required
@require_http_methods(["GET", "POST"])
def job(request: HttpRequest, id: int) -> HttpResponse:
    """The page of one job, which renews itself while something may change: with `live` in the
    address, the parts that change alone."""
    found = job_of(id)
    clear = sees_personal(request)
    if not clear:
        found.error = personal.in_sentence(found.error)
    user: Any = request.user
    flow = flows.get(found.flow)
    require_job(request)
    if flow is not None:
        require(request, flow)
    is_allowed = flow is not None and flow.is_bulk_allowed(user)
    starts_jobs = is_allowed and user.has_perm("msgplatform.add_bulkjob")
    mine = starts_jobs and found.created_by == user.get_username()
    may_change = mine or (is_allowed and user.has_perm("msgplatform.change_bulkjob"))
    if request.method == "POST":
        if not may_change:
            raise PermissionDenied
        return _change(request, found)
    action = flow.actions.get(found.action) if flow else None
    sums = outcomes.sums(found) if action and action.outcome else None
    again = ""
    hidden = set() if clear or not action else flows.personal_names(action.fields)
    if flow and action and starts_jobs and not hidden.intersection(found.filter):
        query = urlencode({"action": found.action, **found.filter, "count": 1})
        again = f"{reverse('console:bulk-flow', args=[flow.name])}?{query}"
    context = {
        "job": found,
        "flow": flow,
        "action": action,
        "left": _left(found),
        "outcome": sums,
        "may_change": may_change,
        "can": {to: found.state in states for to, states in BulkJob.FROM.items()},
        # 0 when nothing of the page will change any more.
        "seconds": 2 if found.is_open else 5 if sums and sums.waiting else 0,
    }
    if "live" in request.GET:
        return render(request, "console/job_live.html", context)
    filled_in = _filter(flow, found)
    return page(
        request,
        "job.html",
        _("Bulk job %d") % found.pk,
        filter=filled_in if clear else personal.in_sentences(filled_in),
        again=again,
        **context,
    )


def _change(request: HttpRequest, found: BulkJob) -> HttpResponse:
    to = request.POST.get("to", "")
    if to not in BulkJob.FROM:
        raise Http404(_("There is no such state."))
    # Only from these states: one that has ended meanwhile must not start again.
    rows = BulkJob.objects.filter(pk=found.pk, state__in=BulkJob.FROM[_State(to)])
    if rows.update(state=to):
        audit(request, f"bulk_{to}", found.audit_target)
    else:
        messages.warning(request, _("The job was in another state by then."))
    return redirect("console:job", found.pk)


def _filter(flow: flows.Flow | None, found: BulkJob) -> list[tuple[str, str]]:
    """What was filled in, by the labels of its fields."""
    labels: dict[str, Any] = {}
    if flow and found.action in flow.actions:
        fields = BulkForm(flow, found.action, True).fields
        labels = {name: field.label for name, field in fields.items()}
    return [(str(labels.get(name, name)), str(value)) for name, value in found.filter.items()]


def _left(found: BulkJob) -> timedelta | None:
    """How long it will take from now on; None when nobody can say."""
    if found.more or not found.done or found.state not in (_State.PENDING, _State.RUNNING):
        return None
    missing = max(0, found.total - found.done)
    if found.rate:
        return timedelta(seconds=missing / found.rate)
    return (timezone.now() - found.created_at) * (missing / found.done)
