"""One message: its page, resending it, and its whole content as a file."""

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.html import format_html, format_html_join
from django.utils.http import content_disposition_header
from django.utils.translation import gettext as _, ngettext
from msgspec.structs import replace

from msgplatform import person_limits
from msgplatform.core.errors import UNAVAILABLE, InvalidInput, NotNow, PlatformError, Unavailable
from msgplatform.core.flows.contract import Flow
from msgplatform.core.flows.page import PageLink, TimelineEntry
from msgplatform.core.tracing import spans
from msgplatform.core.tracing.context import is_on
from msgplatform.doors.admin import audit, cells, sees_personal
from msgplatform.doors.console.views.page import flow_of, masked, page, staff_view
from msgplatform.messages import engine
from msgplatform.models import AuditLog

_RESENT = "message_resent"  # an action of the audit log
_MAX_ENTRIES = 50  # maximum entries of the audit log on a page
_MAX_LINKS = 10  # maximum new messages that an answer names


@staff_view("GET", answers_limited_people=True)
def message(request: HttpRequest, flow_name: str, id: str) -> HttpResponse:
    """One message: its state at each of its recipients, and its steps in time."""
    flow = flow_of(request, flow_name)
    try:
        _require_own(request, flow, id)
        shown_page = flow.messages.page(id, request.GET.get("after", ""))
    except Unavailable as error:
        return _unavailable(request, flow, error)
    except InvalidInput:
        raise _missing() from None
    if shown_page is None:
        raise _missing()
    trace_id = shown_page.trace_id if is_on() else ""
    if is_on() and not trace_id and shown_page.id.isdigit():
        context = spans.read_contexts([int(shown_page.id)]).get(int(shown_page.id))
        trace_id = context.trace_id if context else ""
    if trace_id:
        url = settings.TRACE_URL.replace("{trace_id}", trace_id)
        value = PageLink(trace_id, url) if url else trace_id
        shown_page = replace(shown_page, facts={**shown_page.facts, _("Trace"): value})
    if not sees_personal(request):
        shown_page = replace(masked(shown_page), has_file=False)
    # A recipient that the message reached is one line among several, opened by a click.
    recipients = shown_page.recipients
    rows = []
    if len(recipients) > 1:
        rows = [recipient for recipient in recipients if recipient.tone == "good"]
    # The timeline, with the person who resent the message from its page.
    timeline = list(shown_page.timeline)
    entries = AuditLog.objects.filter(target=_target(flow, shown_page.id), action=_RESENT)
    for entry in entries.order_by("-id")[:_MAX_ENTRIES]:
        # A step without a time is still to happen, or its time is unknown: it stays at the end.
        later_positions = (
            position
            for position, step in enumerate(timeline)
            if step.at is None or step.at > entry.at
        )
        resending = TimelineEntry(entry.at, _("Sent again by %s") % entry.actor, "linked")
        timeline.insert(next(later_positions, len(timeline)), resending)
    return page(
        request,
        "message.html",
        _("Message"),
        flow=flow,
        message=shown_page,
        cards=[recipient for recipient in recipients if recipient not in rows],
        rows=rows,
        timeline=timeline,
        may_send=may_resend(request, flow),
        is_continued="after" in request.GET,
    )


@staff_view("POST", answers_limited_people=True)
def resend(request: HttpRequest, flow_name: str, id: str) -> HttpResponse:
    """Resend a message, to one recipient or to all that it did not reach."""
    flow = flow_of(request, flow_name)
    if not may_resend(request, flow):
        raise PermissionDenied
    recipient = request.POST.get("recipient", "")
    new_id = resend_messages(request, flow, [id], recipient, leads_there=True)
    if new_id is None:
        raise _missing()
    return redirect("console:message", flow_name, new_id or id)


def may_resend(request: HttpRequest, flow: Flow) -> bool:
    """True if this person may resend messages of the flow."""
    return flow.resend_action is not None and request.user.has_perm(flow.resend_permission)


def resend_messages(
    request: HttpRequest,
    flow: Flow,
    ids: Sequence[str],
    recipient: str = "",
    *,
    leads_there: bool = False,
) -> str | None:
    """Resend messages, show the result, and write the person to the audit log. Returns the id of
    the last new message, '' without one; None if the flow has none of the messages. `leads_there`:
    the caller shows the new message."""
    action = flow.resend_action
    if action is None:
        raise PermissionDenied
    count, left_count, unknown_count = 0, 0, 0
    systems = person_limits.ids_of(request)
    new_ids: list[str] = []
    refusal: Exception | None = None
    for position, id in enumerate(ids):
        try:
            if not engine.is_of_systems(flow.messages, id, systems):
                unknown_count += 1
                continue
            resent = action.resend(id, recipient, request.user.get_username())
        except InvalidInput:
            unknown_count += 1
            continue
        except NotNow as error:  # only this message; the next may be accepted
            left_count, refusal = left_count + 1, error
            continue
        except (PlatformError, *UNAVAILABLE) as error:
            # The person can repeat it: a repeated step sends nothing twice.
            left_count, refusal = left_count + len(ids) - position, error
            break
        if resent.count:
            detail: dict[str, Any] = {"recipient": recipient, "count": resent.count}
            detail |= {"message": resent.message} if resent.message else {}
            audit(request, _RESENT, _target(flow, id), **detail)
        left_count += max(1, resent.left) if resent.left or not resent.count else 0
        count += resent.count
        new_ids += [resent.message] if resent.message else []
    if refusal is not None:
        messages.error(request, _("It was not sent again: %s") % refusal)
    last_id = None if unknown_count == len(ids) else "".join(new_ids[-1:])
    if len(ids) == 1 and (unknown_count or refusal is not None):
        return last_id
    if new_ids and leads_there:
        messages.success(request, _("Sent again as a new message, which is shown here."))
    elif new_ids:
        text = ngettext(
            "%d message is sent again:", "%d messages are sent again:", len(new_ids)
        ) % len(new_ids)  # fmt: skip
        links = ((cells.message_link(flow.name, id),) for id in new_ids[:_MAX_LINKS])
        more = ", …" if len(new_ids) > _MAX_LINKS else ""
        messages.success(
            request, format_html("{} {}{}", text, format_html_join(", ", "{}", links), more)
        )
    elif count:
        text = ngettext("Sent again to %d recipient.", "Sent again to %d recipients.", count)
        messages.success(request, text % count)
    if left_count := left_count + unknown_count:
        text = ngettext(
            "%d was left alone: it is on its way, or has reached its end in another way meanwhile.",
            "%d were left alone: they are on their way, or have reached their end in another way "
            "meanwhile.",
            left_count,
        )
        messages.info(request, text % left_count)
    return last_id


@staff_view("GET", answers_limited_people=True)
def content(request: HttpRequest, flow_name: str, id: str) -> HttpResponse:
    """The whole content of one message, as a file; its page shows only the beginning of a long
    one."""
    flow = flow_of(request, flow_name)
    if not sees_personal(request):
        raise PermissionDenied
    try:
        _require_own(request, flow, id)
        file = flow.messages.file(id)
    except Unavailable as error:
        return _unavailable(request, flow, error)
    if file is None:
        raise _missing()
    # As an attachment (and with Django's X-Content-Type-Options) the browser never runs it.
    name = content_disposition_header(as_attachment=True, filename=file.name)
    return HttpResponse(
        file.content, content_type=file.media_type, headers={"Content-Disposition": name}
    )


def _target(flow: Flow, id: str) -> str:
    """The target of a message's entries in the audit log; an index finds them."""
    return f"{flow.name} {id}"[:200]


def _unavailable(request: HttpRequest, flow: Flow, error: Unavailable) -> HttpResponse:
    return page(request, "message.html", _("Message"), 503, flow=flow, notice=str(error))


def _require_own(request: HttpRequest, flow: Flow, id: str) -> None:
    """Raises Http404 for a message of a system that this person may not see, as if it did not
    exist; Unavailable if the system cannot be determined."""
    if not engine.is_of_systems(flow.messages, id, person_limits.ids_of(request)):
        raise _missing()


def _missing() -> Http404:
    return Http404(_("There is no such message; it may have been deleted by retention."))
