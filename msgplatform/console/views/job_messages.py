"""The messages behind a number on a bulk job's page: those that arrived, failed again, or wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.admin.views.decorators import staff_member_required
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET

from msgplatform.admin import sees_personal
from msgplatform.console.masking import masked
from msgplatform.console.views.page import flow_of, job_of, page, require_job
from msgplatform.core import flows
from msgplatform.core.errors import UNAVAILABLE, InvalidInput, Unavailable
from msgplatform.jobs import outcomes

SHOWN = 50
_TITLES: Mapping[flows.Ending, Any] = {
    "arrived": gettext_lazy("Sent again by this job, and arrived"),
    "failed": gettext_lazy("Sent again by this job, and failed again"),
    "waiting": gettext_lazy("Sent again by this job, and still waiting"),
}


@staff_member_required
@require_GET
def job_messages(request: HttpRequest, id: int, ending: str) -> HttpResponse:
    """What a job's page counts under this ending, page by page."""
    found = job_of(id)
    require_job(request)
    flow = flow_of(request, found.flow)
    which = next((one for one in _TITLES if one == ending), None)
    if which is None:
        raise Http404(_("There is no such list."))
    try:
        listed = outcomes.listed(found, which, request.GET.get("cursor", ""), SHOWN)
    except InvalidInput:
        raise Http404(_("There is no such page.")) from None
    hits, problem = _hits(request, flow, found.action, listed.ids)
    return page(
        request,
        "job_messages.html",
        _TITLES[which],
        job=found,
        flow=flow,
        found=hits,
        problem=problem,
        forgotten=outcomes.are_forgotten(found, which),
        days=outcomes.KEPT.days,
        next=f"?{urlencode({'cursor': listed.cursor})}" if listed.cursor else "",
    )


def _hits(
    request: HttpRequest, flow: flows.Flow, action: str, ids: list[str]
) -> tuple[list[flows.Hit], str]:
    """Their lines as this person may see them, and a sentence when they cannot be read."""
    try:
        known = flow.actions.get(action)
        hits = known.lines(ids) if known and ids else ()
    except Unavailable as error:
        return [], str(error)
    except UNAVAILABLE:
        return [], _("A server does not answer at present.")
    return [hit if sees_personal(request) else masked(hit) for hit in hits], ""
