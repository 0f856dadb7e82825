"""Filters that people store under a name: their own, and filters that others share."""

from typing import Any

import msgspec
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import Case, Q, When
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from msgplatform import person_limits
from msgplatform.core.flows.contract import Flow
from msgplatform.core.flows.messages import personal_names
from msgplatform.doors.admin import sees_personal
from msgplatform.doors.console.forms import BulkForm, FilterForm, page_fields
from msgplatform.doors.console.views.page import bulk_address, can_start_jobs, flow_of, staff_view
from msgplatform.models import SavedFilter

SHOWN = 50  # of other people's, on one page
MAX_FILTERS = 100  # maximum for one person
DELETE_PERMISSION = "auth.change_user"  # the permission to delete shared filters
PREFIX = "filter"  # prefix of the filter's fields in the saving form


class FilterLink(msgspec.Struct, frozen=True):
    row: SavedFilter
    link: str
    is_own: bool
    can_delete: bool


def saved_for(request: HttpRequest, flow: Flow, page: str) -> list[FilterLink]:
    """The filters that this person sees on a page of a flow whose messages they may see: all of
    their own, and SHOWN that others share. Filters with personal data are left out if the person
    may not see such data."""
    user: Any = request.user
    rows = SavedFilter.objects.filter(flow=flow.name, page=page)
    # Limited people see only their own: shared filters may name other systems.
    visibility = Q(owner=user)
    if not person_limits.is_limited(request):
        visibility |= Q(shared=True)
    rows = rows.filter(visibility).select_related("owner")
    # The person's own come first, and only those of others are cut.
    rows = rows.order_by(Case(When(owner=user, then=0), default=1), "name")
    hidden_names = set() if sees_personal(request) else personal_names(page_fields(flow, page))
    links = [
        FilterLink(row, _address(row), row.owner_id == user.pk, _may_delete(user, row))
        for row in rows[: MAX_FILTERS + SHOWN]
        if not hidden_names.intersection(row.query)
    ]
    return links[: sum(link.is_own for link in links) + SHOWN]


@staff_view("POST", answers_limited_people=True)
def save(request: HttpRequest, flow_name: str, page_name: str) -> HttpResponse:
    """Keep a filter; one of the same name is replaced."""
    flow = flow_of(request, flow_name)
    user: Any = request.user
    form_class: type[FilterForm] = FilterForm
    if page_name != SavedFilter.SEARCH:
        form_class = BulkForm
        if page_name not in flow.actions:
            raise Http404(_("There is no such bulk action."))
        if not can_start_jobs(request.user, flow):
            raise PermissionDenied
    form = form_class(flow, page_name, sees_personal(request), request.POST, prefix=PREFIX)
    if not form.is_valid():
        messages.error(request, _("This filter cannot be saved: correct it first."))
        return redirect(_address(SavedFilter(flow=flow.name, page=page_name)))
    query = form.filter()
    if isinstance(form, BulkForm) and form.pace:
        query["rate"] = str(form.pace)
    name = request.POST.get("name", "").replace("\x00", "").strip()[:60]
    row = SavedFilter(flow=flow.name, page=page_name, query=query)
    others = SavedFilter.objects.filter(owner=user).exclude(
        flow=flow.name, page=page_name, name=name
    )
    if not name:
        messages.error(request, _("Give the filter a name."))
    elif others.count() >= MAX_FILTERS:
        messages.error(request, _("You have %d saved filters: delete one first.") % MAX_FILTERS)
    else:
        SavedFilter.objects.update_or_create(
            owner=user,
            flow=flow.name,
            page=page_name,
            name=name,
            defaults={"query": query, "shared": "shared" in request.POST},
        )
        messages.success(request, _("Saved: %s.") % name)
    return redirect(_address(row))


@staff_view("POST", answers_limited_people=True)
def delete(request: HttpRequest, id: int) -> HttpResponse:
    """Delete one's own filter. Administrators may delete shared filters."""
    row = SavedFilter.objects.filter(pk=id).first()
    is_own = row is not None and row.owner_id == request.user.pk
    if row is None or (person_limits.is_limited(request) and not is_own):
        raise Http404
    if not _may_delete(request.user, row):
        # Do not reveal that somebody has a filter that is not shared.
        raise (PermissionDenied() if row.shared else Http404())
    row.delete()
    messages.success(request, _("Deleted: %s.") % row.name)
    return redirect(_address(SavedFilter(flow=row.flow, page=row.page)))


def _may_delete(user: Any, row: SavedFilter) -> bool:
    return bool(row.owner_id == user.pk or (row.shared and user.has_perm(DELETE_PERMISSION)))


def _address(row: SavedFilter) -> str:
    """The page with this filter filled in."""
    if row.page != SavedFilter.SEARCH:
        return bulk_address(row.flow, row.page, row.query)
    address = reverse("console:find", args=[row.flow])
    return f"{address}?{urlencode(row.query)}" if row.query else address
