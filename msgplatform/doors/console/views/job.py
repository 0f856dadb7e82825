"""One bulk job: its progress, the outcomes of its messages, pause, resume and cancel."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.translation import gettext as _, gettext_lazy

from msgplatform.core import flows, personal
from msgplatform.core.errors import UNAVAILABLE, InvalidInput, NotNow, Unavailable
from msgplatform.core.flows.actions import Ending
from msgplatform.core.flows.messages import personal_names
from msgplatform.core.flows.page import Hit
from msgplatform.doors.admin import sees_personal
from msgplatform.doors.console.forms import BulkForm
from msgplatform.doors.console.views import page as pages
from msgplatform.jobs import control, outcomes
from msgplatform.jobs.models import BulkJob
from msgplatform.models import AuditLog

_State = BulkJob.State
SHOWN = 50
LOOKED_AT = 500  # maximum of waiting messages whose reason is shown
_TITLES: Mapping[Ending, Any] = {
    "arrived": gettext_lazy("Sent again by this job, and arrived"),
    "failed": gettext_lazy("Sent again by this job, and failed again"),
    "waiting": gettext_lazy("Sent again by this job, and still waiting"),
}


@pages.staff_view("GET", "POST", answers_limited_people=True)
def job(request: HttpRequest, id: int) -> HttpResponse:
    """The page of one job, which renews itself while something may change: with `live` in the
    address, the parts that change alone."""
    row = pages.job_of(request, id)
    clear = sees_personal(request)
    if not clear:
        row.error = personal.mask_sentence(row.error)
    user: Any = request.user
    flow = flows.get(row.flow)
    if flow is not None:
        pages.require(request, flow)
    is_allowed = flow is not None and flow.is_bulk_allowed(user)
    starts_jobs = flow is not None and pages.can_start_jobs(user, flow)
    is_own = starts_jobs and row.created_by == user.get_username()
    may_change = is_own or (is_allowed and user.has_perm("msgplatform.change_bulkjob"))
    if request.method == "POST":
        if not may_change:
            raise PermissionDenied
        to = request.POST.get("to", "")
        if to not in BulkJob.FROM:
            raise Http404(_("There is no such state."))
        try:
            control.change(row.pk, to, user.get_username())
        except NotNow:
            messages.warning(request, _("The job was in another state by then."))
        return redirect("console:job", row.pk)
    action = flow.actions.get(row.action) if flow else None
    sums = outcomes.sums(row) if action and action.outcome else None
    notices: Sequence[str] = ()
    if action and sums and sums.waiting:
        with suppress(*UNAVAILABLE):
            ids = outcomes.list_messages(row, "waiting", "", LOOKED_AT).ids
            notices = action.why_waiting(ids)
    repeat_url = ""
    hidden_names = set() if clear or not action else personal_names(action.fields)
    if flow and action and starts_jobs and not hidden_names.intersection(row.filter):
        pace = {"rate": row.rate} if row.rate else {}
        repeat_url = pages.bulk_address(flow.name, row.action, row.filter, **pace, count=1)
    seconds = 2 if row.is_open else 0  # 0: no part of the page will change any more
    if not row.is_open and sums and sums.waiting:
        seconds = 5
    context = {
        "job": row,
        "flow": flow,
        "action": action,
        "left": _time_left(row),
        "outcome": sums,
        "notices": notices if clear else [personal.mask_sentence(notice) for notice in notices],
        "may_change": may_change,
        "can": {to: row.state in states for to, states in BulkJob.FROM.items()},
        "seconds": seconds,
    }
    if "live" in request.GET:
        return render(request, "console/job_live.html", context)
    summary = [(name, str(value)) for name, value in row.filter.items()]
    if flow and action:
        summary = BulkForm(flow, row.action, True).summary(row.filter)
    return pages.page(
        request,
        "job.html",
        _("Bulk job %d") % row.pk,
        filter=summary if clear else personal.mask_sentences(summary),
        repeat_url=repeat_url,
        **context,
    )


def _time_left(row: BulkJob) -> timedelta | None:
    """The time until the job ends; None while it cannot be estimated."""
    if row.more or not row.done or row.state not in (_State.PENDING, _State.RUNNING):
        return None
    missing = max(0, row.total - row.done)
    if row.rate:
        return timedelta(seconds=missing / row.rate)
    resumed_entries = AuditLog.objects.filter(target=row.audit_target, action="bulk_pending")
    if row.waits or resumed_entries.exists():  # the job is older than the time of its steps
        return None
    return (timezone.now() - row.created_at) * (missing / row.done)


@pages.staff_view("GET", answers_limited_people=True)
def job_messages(request: HttpRequest, id: int, ending: str) -> HttpResponse:
    """The messages that the job's page counts under this ending, page by page."""
    row = pages.job_of(request, id)
    flow = pages.flow_of(request, row.flow)
    kind = next((name for name in _TITLES if name == ending), None)
    if kind is None:
        raise Http404(_("There is no such list."))
    try:
        message_ids = outcomes.list_messages(row, kind, request.GET.get("cursor", ""), SHOWN)
    except InvalidInput:
        raise Http404(_("There is no such page.")) from None
    hits: Sequence[Hit] = ()
    problem = ""
    try:
        action = flow.actions.get(row.action)
        hits = action.lines(message_ids.ids) if action and message_ids.ids else ()
    except Unavailable as error:
        problem = str(error)
    except UNAVAILABLE:
        problem = _("A server does not answer at present.")
    return pages.page(
        request,
        "job_messages.html",
        _TITLES[kind],
        job=row,
        flow=flow,
        found=pages.as_seen(request, hits),
        problem=problem,
        forgotten=outcomes.has_dropped_ids(row, kind),
        days=outcomes.KEEP_IDS.days,
        next=f"?{urlencode({'cursor': message_ids.cursor})}" if message_ids.cursor else "",
    )
