"""Bulk jobs: choose, preview, start. A job's own page is in `job`."""

import math
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.core import signing
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.utils.translation import gettext as _

from msgplatform import person_limits
from msgplatform.core import flows
from msgplatform.core.errors import InvalidInput, Unavailable
from msgplatform.core.flows.actions import BulkAction
from msgplatform.core.flows.bulk_pages import Counted
from msgplatform.core.flows.contract import Flow
from msgplatform.doors.admin import sees_personal
from msgplatform.doors.console.forms import BulkForm
from msgplatform.doors.console.views.page import jobs_of, masked, page, staff_view
from msgplatform.doors.console.views.saved_filters import saved_for
from msgplatform.jobs import control
from msgplatform.messages import engine

JOBS_SHOWN = 5
_SALT = "msgplatform.doors.console.preview"


@staff_view("GET", "POST", answers_limited_people=True)
@permission_required("msgplatform.add_bulkjob", raise_exception=True)
def bulk(request: HttpRequest, flow_name: str = "") -> HttpResponse:
    """Choose an action, a filter and a pace, see what they would change, then start the job.

    Only what was previewed is started: if anything changed since, the page shows a new preview.
    """
    bulk_flows = [flow for flow in flows.all() if flow.is_bulk_allowed(request.user)]
    parameters: QueryDict = request.POST if request.method == "POST" else request.GET
    flow, name = _find_action(request, bulk_flows, flow_name, parameters.get("action"))
    action = flow.actions[name]
    systems = person_limits.systems_of(request)
    if systems is not None and len(systems) == 1 and "biz" in action.fields and parameters:
        # If a person sees one business system, the filter means that one.
        parameters = parameters.copy()
        parameters["biz"] = parameters.get("biz") or next(iter(systems))
    form = BulkForm(flow, name, sees_personal(request), parameters or None)
    _keep_to_limit(request, action, form)
    is_start = request.method == "POST" and "start" in parameters
    preview_seen: dict[str, Any] = {}
    with suppress(signing.BadSignature):
        if is_start:
            preview_seen = signing.loads(parameters.get("previewed", ""), salt=_SALT)
    choice = [flow.name, name, form.filter(), form.pace] if form.is_valid() else []
    preview, pace, signed_preview = None, 0, ""
    try:
        if choice and preview_seen and preview_seen["wanted"] == choice:
            return _start(request, flow, name, form.filter(), preview_seen)
        # A link may bring a filled form (`ids=…`) without asking for its count, which may take
        # long.
        if form.is_valid() and (request.method == "POST" or "count" in parameters):
            preview = flow.action(name).preview(form.filter())
    except InvalidInput as error:
        form.refuse(error.field, str(error))
    except Unavailable as error:
        form.refuse("", str(error))
    if preview:
        # The entered pace, else the receiver's limit, else 0: as fast as possible.
        pace = form.pace or (max(1, math.floor(preview.pace)) if preview.pace else 0)
    if preview and preview.counted.count:
        # Signed, not stored: at the start it proves what the person has seen, and the job runs
        # that. At most one job has this `key`, however often Start is pressed.
        contents = {
            "key": uuid.uuid4().hex, "wanted": choice, "pace": pace, "cursor": preview.cursor,
            "count": preview.counted.count, "more": preview.counted.more,
        }  # fmt: skip
        signed_preview = signing.dumps(contents, salt=_SALT)
    return page(
        request,
        "bulk.html",
        _("Bulk jobs"),
        form=form,
        flow=flow,
        flows=bulk_flows,
        name=name,
        action=action,
        preview=preview if not preview or sees_personal(request) else masked(preview),
        counted=preview.counted if preview else None,
        pace=pace,
        seconds=preview.counted.count / pace if preview and pace else None,
        changed=is_start and preview is not None,
        previewed=signed_preview,
        saved=saved_for(request, flow, name),
        saved_page=name,
        query=form.filter() if preview else {},
        jobs=jobs_of(request).filter(flow__in=[flow.name for flow in bulk_flows])[:JOBS_SHOWN],
    )


def _start(
    request: HttpRequest,
    flow: Flow,
    name: str,
    values: Mapping[str, str],
    preview_seen: Mapping[str, Any],
) -> HttpResponse:
    """Start the job that was previewed. Raises InvalidInput if something that the filter names has
    been deleted since."""
    action, key = flow.actions[name], preview_seen["key"]
    owner_id = action.owner_of(values)
    job_request = control.JobRequest(
        flow.name, name, values, preview_seen["pace"], key, preview_seen["cursor"], owner_id
    )
    counted = Counted(preview_seen["count"], preview_seen["more"])
    try:
        job = control.start(job_request, counted, request.user.get_username())
    except IntegrityError:  # the second click of two: the job is there
        job = jobs_of(request).get(started_from=key)
    else:
        messages.success(request, _("Bulk job started: %s.") % action.title)
    return redirect("console:job", job.pk)


def _keep_to_limit(request: HttpRequest, action: BulkAction, form: BulkForm) -> None:
    """Refuse a filter that names business systems which this person may not see."""
    systems = person_limits.ids_of(request)
    if systems is None or not form.is_valid():
        return
    fields = action.fields
    try:
        engine.read_limited(fields, form.filter(), systems)
        if action.owner_of(form.filter()) in systems:
            return
        names = [str(field.label) for field in fields.values() if field.owners is not None]
        sentence = _("Choose what belongs to one of your business systems: %s.") % ", ".join(names)
        form.refuse("biz", sentence)
    except InvalidInput as error:
        form.refuse(error.field, str(error))


def _find_action(
    request: HttpRequest, bulk_flows: Sequence[Flow], flow_name: str, action: str | None
) -> tuple[Flow, str]:
    """The flow and the action that an address names, or the first ones."""
    # The permission for bulk jobs is not enough: a job also needs that for one message.
    if not bulk_flows:
        raise PermissionDenied
    flow = flows.get(flow_name) if flow_name else bulk_flows[0]
    if flow is None or not flow.actions:
        raise Http404(_("There is no such flow."))
    if not flow.is_bulk_allowed(request.user):
        raise PermissionDenied
    name = action or next(iter(flow.actions))
    if name not in flow.actions:
        raise Http404(_("There is no such bulk action."))
    return flow, name
