"""Search over all flows, and through their texts piece by piece."""

import re
from datetime import timedelta
from urllib.parse import urlencode

from django.conf import settings
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _

from msgplatform import person_limits
from msgplatform.core import cells, flows
from msgplatform.core.data import ids, sql
from msgplatform.core.errors import UNAVAILABLE, InvalidInput
from msgplatform.doors.admin import sees_personal
from msgplatform.doors.console.forms import page_fields
from msgplatform.doors.console.views.page import as_seen, flow_of, page, staff_view, visible
from msgplatform.messages import engine

SEARCH_LIMIT = 50
MAX_QUERY = 200
MIN_TEXT = 3  # characters: shorter texts are in nearly every message
MIN_CJK = 2  # characters, if one is Chinese, Japanese or Korean: words have two
_CJK = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_ID = re.compile("[0-9]{15,19}")
TEXT_HOURS = 24
TEXT_SECONDS = 0.2  # seconds of one piece: a person sees the progress and can stop it


@staff_view("GET", answers_limited_people=True)
def search(request: HttpRequest) -> HttpResponse:
    """Search every flow; the query is in the URL, so a result can be sent to a colleague.

    The page has at once the messages that indexes find. It then asks for texts, see `texts`, unless
    the query is the id of a message that was found. The page of this message opens if it is the
    only hit, with a link that leads back here with `all`.
    """
    # The box at the top uses another name, because lists have a "q" too. The query is cut here,
    # because a form's maxlength does not bind a typed URL.
    query = (request.GET.get("q") or request.GET.get("find") or "").strip()[:MAX_QUERY]
    visible_flows, clear = visible(request), sees_personal(request)
    systems = person_limits.ids_of(request)
    results = [
        (flow, engine.search(flow.messages, query, SEARCH_LIMIT, clear, systems))
        for flow in visible_flows
    ]
    # Sentences about messages that were not searched, with a link to a search of these.
    notices = [flow.messages.search_warning(systems) for flow in visible_flows] if query else []
    for flow, result in results if query else ():
        if result.notice:
            title = _("%(title)s: search by fields") % {"title": flow.title}
            address = reverse("console:find", args=[flow.name])
            notices.append(format_html('{} <a href="{}">{}</a>', result.notice, address, title))
    groups = [(flow, as_seen(request, result.hits)) for flow, result in results]
    hits = [(flow, hit) for flow, lines in groups for hit in lines]
    is_exact = len(hits) == 1 and hits[0][1].id == query and not hits[0][1].link
    if is_exact and "all" not in request.GET:
        address = f"{reverse('console:search')}?{urlencode({'q': query, 'all': 1})}"
        link = format_html('{} <a href="{}">{}</a>', _("The only hit."), address, _("Search on"))
        messages.info(request, link)
        flow, hit = hits[0]
        return redirect("console:message", flow.name, hit.id)
    # A person who may search for any text can guess hidden texts piece by piece.
    with_texts = []
    if clear and _is_long_enough(query):
        with_texts = [flow for flow in visible_flows if flow.messages.searched_text_label]
    return page(
        request,
        "search.html",
        _("Search"),
        searched=query,
        groups=groups if query else [],
        hits=hits,
        limit=SEARCH_LIMIT,
        full=[flow for flow, lines in groups if len(lines) >= SEARCH_LIMIT],
        notices=[notice for notice in notices if notice],
        searchable=[flow for flow in visible_flows if flow.messages.fields],
        with_texts=with_texts,
        starts_texts=not any(hit.id == query for _flow, hit in hits),
        short=bool(query) and not _is_long_enough(query),
        clear=clear,
        other_cell=None if hits else _other_cell(query),
        unseen=[flow for flow in flows.all() if flow not in visible_flows],
        hours=TEXT_HOURS,
    )


def _other_cell(query: str) -> dict[str, str] | None:
    """The cell that an id names, unless it is this one: its label, and the address of the same
    search in its console, '' without an address."""
    this_cell = cells.own()
    if not _ID.fullmatch(query) or this_cell.is_only:
        return None
    number = this_cell.number_of(int(query))
    # An id begins with its time: a time in the future is no id.
    if number == this_cell.number or ids.datetime_of(int(query)) > sql.now() + timedelta(hours=1):
        return None
    url = settings.CELL_URLS.get(number, "")
    address = f"{url}{reverse('console:search')}?{urlencode({'q': query})}" if url else ""
    return {"label": f"{number}/{this_cell.count}", "address": address}


@staff_view("GET", answers_limited_people=True)
def texts(request: HttpRequest, flow_name: str) -> HttpResponse:
    """The next piece of a search through one flow's texts: rows as HTML, its progress, and the
    cursor of the next piece, '' at the end."""
    flow = flow_of(request, flow_name)
    if not sees_personal(request):
        raise PermissionDenied
    query = request.GET.get("q", "").strip()[:MAX_QUERY]
    if not _is_long_enough(query):
        problem = _("Enter at least %d characters.") % MIN_TEXT
        return JsonResponse({"problem": problem}, status=400)
    since = sql.now() - timedelta(hours=TEXT_HOURS)
    try:
        piece = engine.search_text(
            flow.messages,
            query,
            since,
            request.GET.get("cursor", ""),
            TEXT_SECONDS,
            person_limits.ids_of(request),
        )
    except InvalidInput as error:
        return JsonResponse({"problem": str(error)}, status=400)
    except UNAVAILABLE:
        return JsonResponse({"problem": _("A server does not answer at present.")}, status=503)
    rows = render_to_string("console/hits.html", {"flow": flow, "found": piece.hits}, request)
    return JsonResponse({"rows": rows, "cursor": piece.cursor, "range": piece.range_text})


@staff_view("GET", answers_limited_people=True)
def options(request: HttpRequest, flow_name: str, page_name: str, field_name: str) -> HttpResponse:
    """The values for a field of a search or a bulk action, by a part of their names."""
    flow = flow_of(request, flow_name)
    field = page_fields(flow, page_name).get(field_name)
    if field is None or field.options is None or (field.personal and not sees_personal(request)):
        raise Http404(_("There is no such field."))
    text = request.GET.get("q", "").strip()[:MAX_QUERY].replace("\x00", "")
    choices = field.options(text, person_limits.ids_of(request))
    return JsonResponse(
        {"options": [{"value": choice.value, "label": str(choice.label)} for choice in choices]}
    )


def _is_long_enough(query: str) -> bool:
    """True if the query is long enough for a search through texts."""
    return len(query) >= (MIN_CJK if _CJK.search(query) else MIN_TEXT)
