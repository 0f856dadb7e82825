"""The list of one flow's messages: filter them, tick some and resend them, take all as a CSV file.

The filter and the page are in the address, so a list can be sent to a colleague.
"""

from collections.abc import Iterator

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from msgspec.structs import replace

from msgplatform import person_limits
from msgplatform.core.errors import UNAVAILABLE, InvalidInput
from msgplatform.core.flows.contract import Flow
from msgplatform.core.flows.page import SearchResult
from msgplatform.core.flows.text import Text
from msgplatform.doors.admin import sees_personal
from msgplatform.doors.console.forms import FilterForm
from msgplatform.doors.console.statistics.views import csv_response
from msgplatform.doors.console.views import page as pages
from msgplatform.doors.console.views.message import may_resend, resend_messages
from msgplatform.doors.console.views.saved_filters import saved_for
from msgplatform.messages import engine
from msgplatform.models import SavedFilter

LINES = 50  # rows of one page
# A first page may have as many messages in flight beside its rows.
MAX_TICKED = 2 * LINES
MAX_CSV_LINES = 10_000
_CSV_PAGE = 500
_MAX_CSV_PAGES = 40  # pages may have few matches, and a file must not take minutes


@pages.staff_view("GET", answers_limited_people=True)
def find(request: HttpRequest, flow_name: str) -> HttpResponse:
    """Messages of one flow that match its fields, page by page; without a filter all of them."""
    flow = _searchable(request, flow_name)
    form = FilterForm(flow, SavedFilter.SEARCH, sees_personal(request), request.GET)
    result = _read(request, flow, form) if form.is_valid() else None
    next_page = ""
    if result and result.cursor:
        query = request.GET.copy()
        query["cursor"] = result.cursor
        next_page = f"?{query.urlencode()}"
    values = form.filter() if result else {}
    bulk_links: list[tuple[Text, str]] = []
    if values and pages.can_start_jobs(request.user, flow):
        # Bulk jobs about all messages of this filter. Only for actions that have all of its fields,
        # and read its times the same way: other actions would select other messages.
        fields = flow.messages.fields
        times = {(name, fields[name].read) for name in values if fields[name].kind == "time"}
        bulk_links = [
            (action.title, pages.bulk_address(flow.name, name, values))
            for name, action in flow.actions.items()
            if values.keys() <= action.fields.keys()
            and times <= {(name, field.read) for name, field in action.fields.items()}
        ]
    return pages.page(
        request,
        "search.html",
        pages.list_name(flow),
        flow=flow,
        form=form,
        # Results come first, and fields only where they say what is wrong or find nothing.
        filter_is_open=not result or bool(values and not result.hits),
        summary=form.summary(form.filter()) if values else [],
        found=result,
        hits=[(flow, hit) for hit in result.hits] if result else [],
        notices=[result.notice] if result and result.notice else [],
        next=next_page,
        searchable=[flow for flow in pages.visible(request) if flow.messages.fields],
        clear=sees_personal(request),
        saved=saved_for(request, flow, SavedFilter.SEARCH),
        saved_page=SavedFilter.SEARCH,
        query=values,
        address_query=request.GET.urlencode(),
        can_tick=may_resend(request, flow),
        ticked_action=_ticked_action(request, flow),
        bulk_links=bulk_links,
        flow_links=[
            link
            for link in flow.links
            if request.user.has_perms(link.permissions)
            and person_limits.may_open(request, link.address)
        ],
        csv=f"{reverse('console:messages-csv', args=[flow.name])}?{urlencode(values)}",
    )


@pages.staff_view("GET", answers_limited_people=True)
def as_csv(request: HttpRequest, flow_name: str) -> HttpResponseBase:
    """The messages that match, newest first, up to MAX_CSV_LINES; masked as the list is."""
    flow = _searchable(request, flow_name)
    form = FilterForm(flow, SavedFilter.SEARCH, sees_personal(request), request.GET)
    first_page = _read(request, flow, form, _CSV_PAGE) if form.is_valid() else None
    if first_page is None:  # the list shows the filter's error
        return redirect(f"{reverse('console:find', args=[flow.name])}?{request.GET.urlencode()}")
    return csv_response(f"{flow.name}-messages", _csv_rows(request, flow, form, first_page))


@pages.staff_view("POST", answers_limited_people=True)
def resend(request: HttpRequest, flow_name: str) -> HttpResponse:
    """Resend the messages that are ticked, each to all recipients that it did not reach."""
    flow = pages.flow_of(request, flow_name)
    if not may_resend(request, flow):
        raise PermissionDenied
    ids = list(dict.fromkeys(request.POST.getlist("id")))[:MAX_TICKED]
    if not ids:
        messages.warning(request, _("Tick the messages that are to be sent again."))
    elif "bulk" in request.POST and (action := _ticked_action(request, flow)):
        return redirect(pages.bulk_address(flow.name, action, {"ids": ",".join(ids)}))
    elif resend_messages(request, flow, ids) is None and len(ids) == 1:
        messages.warning(request, _("This message cannot be sent again as it is now."))
    query = request.POST.get("query", "")
    return redirect(f"{reverse('console:find', args=[flow.name])}?{query}")


def _searchable(request: HttpRequest, name: str) -> Flow:
    flow = pages.flow_of(request, name)
    if not flow.messages.fields:
        raise Http404(_("There is no such flow."))
    return flow


def _read(
    request: HttpRequest, flow: Flow, form: FilterForm, limit: int = LINES
) -> SearchResult | None:
    """A page as this person may see it. None if the filter is wrong: the form then says so."""
    try:
        result = engine.find(
            flow.messages,
            form.filter(),
            request.GET.get("cursor", ""),
            limit,
            person_limits.ids_of(request),
        )
    except InvalidInput as error:
        form.refuse(error.field, str(error))
        return None
    return replace(result, hits=pages.as_seen(request, result.hits))


def _csv_rows(
    request: HttpRequest, flow: Flow, form: FilterForm, first_page: SearchResult
) -> Iterator[list[str]]:
    yield [_("Id"), _("Message"), _("System"), _("State"), _("Accepted"), _("Details"), _("Reason")]
    # A message in flight on the first page may be read again from the archive: show it once.
    # (Several records of CRM sync, which has none in flight, may have one id.)
    first_ids = {line.id for line in first_page.hits} if flow.messages.live else set()
    result, count, page_count = first_page, 0, 1
    systems = person_limits.ids_of(request)
    notices = dict.fromkeys([first_page.notice])
    while True:
        for line in result.hits:
            if page_count == 1 or line.id not in first_ids:
                at = line.at.isoformat() if line.at else ""
                yield [
                    line.id, line.title, line.biz, line.state, at, line.details, line.reason,
                ]  # fmt: skip
        count, page_count = count + len(result.hits), page_count + 1
        if not result.cursor or count >= MAX_CSV_LINES or page_count > _MAX_CSV_PAGES:
            break
        try:
            result = engine.find(flow.messages, form.filter(), result.cursor, _CSV_PAGE, systems)
        except (InvalidInput, *UNAVAILABLE) as error:
            result = replace(result, cursor="")
            notice = _("A server does not answer at present: the file is not complete.")
            if isinstance(error, InvalidInput):  # what the filter names was deleted meanwhile
                notice = _("The file is not complete: %s") % error
            notices[notice] = None
            break
        result = replace(result, hits=pages.as_seen(request, result.hits))
        notices[result.notice] = None
    if result.cursor:
        notices[_("There are more messages: narrow the filter by a time.")] = None
    yield from ([notice] for notice in notices if notice)


def _ticked_action(request: HttpRequest, flow: Flow) -> str:
    """The bulk action for ticked messages; '' if this person has none."""
    names = [name for name, action in flow.actions.items() if action.has_message_ids]
    return names[0] if names and pages.can_start_jobs(request.user, flow) else ""
