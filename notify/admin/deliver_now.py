"""The button *Deliver now*: on a subscription's page, on its alert, and on Failures."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import redirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext, ngettext

from msgplatform.core.connections import RedisError
from msgplatform.core.errors import NotNow
from msgplatform.core.lazy_text import translated
from msgplatform.doors.admin import ModelAdmin, audit
from msgplatform.person_limits import answers_limited_people
from notify import operations
from notify.models import BizReceive
from notify.monitor import subjects


def deliver_now_view(model_admin: ModelAdmin) -> Callable[[HttpRequest, int], HttpResponse]:
    """The view of the button: a POST delivers now, and leads to the page `next` with a message."""

    @answers_limited_people
    def view(request: HttpRequest, pk: int) -> HttpResponse:
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        row = model_admin.get_queryset(request).filter(pk=pk).first()
        if row is None:
            raise Http404(gettext("There is no such subscription."))
        if not model_admin.has_operate_permission(request, row):
            raise PermissionDenied
        _deliver_now(request, row)
        next_url = request.POST.get("next", "")
        if url_has_allowed_host_and_scheme(next_url, None):
            return redirect(next_url)
        return redirect("admin:notify_bizreceive_change", pk)

    return view


def _deliver_now(request: HttpRequest, row: BizReceive) -> None:
    """Deliver now, write the audit log, and show the outcome or the error as a message."""
    try:
        outcome = operations.deliver_now(row)
    except NotNow as error:
        messages.error(request, translated(error.args[0]))
        return
    except RedisError:
        messages.error(request, gettext("Redis does not answer: nothing was started. Try again."))
        return
    detail = {"probe": outcome.is_probe, "made_due": outcome.made_due}
    audit(request, "subscription_deliver_now", f"{row} #{row.pk}", **detail)
    failures_count = subjects.counts([row.pk]).get(row.pk, 0)
    messages.success(request, _sentence(outcome, failures_count))


def _sentence(outcome: operations.DeliverNowOutcome, failures_count: int) -> str:
    parts = []
    if outcome.is_probe:
        parts.append(
            gettext("One delivery is tried now; if it succeeds, all that wait follow at once.")
        )
    if outcome.made_due:
        text = ngettext(
            "%d delivery no longer waits for its time.",
            "%d deliveries no longer wait for their time.",
            outcome.made_due,
        )
        parts.append(text % outcome.made_due)
    if outcome.has_more:
        parts.append(gettext("More are waiting: deliver now once more when these are done."))
    parts = parts or [gettext("Nothing waits for a later time.")]
    if failures_count:
        text = ngettext(
            "%d message was given up, and stays so: send it again on the page Failures.",
            "%d messages were given up, and stay so: send them again on the page Failures.",
            failures_count,
        )
        parts.append(text % failures_count)
    return " ".join(parts)
