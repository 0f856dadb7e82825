"""Pausing, resuming and discarding subscriptions, for the list and for the page of a subscription.
And the button *Deliver now*: on a subscription's page, on its alert, and on Failures.

The page of a subscription posts to the list's action with itself as the only selected row. An
action that loses messages asks for confirmation first.
"""

from functools import partial

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from msgplatform.core.connections import RedisError
from msgplatform.core.errors import NotNow
from msgplatform.core.lazy_text import translated
from msgplatform.doors.admin import ModelAdmin, audit
from msgplatform.doors.admin.pages import show_page
from msgplatform.messages.filters import MAX_SELECTION
from msgplatform.person_limits import answers_limited_people
from notify import operations
from notify.models import BizReceive
from notify.monitor import subjects

# The number of names that the question shows. Further subscriptions are counted.
_SHOWN = 20


_CHANGES = {
    "pause": operations.PAUSE,
    "resume_and_release": operations.RELEASE,
    "resume_and_skip": operations.SKIP,
    "discard": operations.DISCARD,
}
# Names of the messages that an action loses for good.
_LOSES = {
    "resume_and_skip": _("Deliveries that are held now are skipped: they are never sent."),
    "discard": _("Deliveries that wait are skipped, and new messages are not delivered to it."),
}
_TITLES = {
    "resume_and_skip": _("Resume and skip what was held"),
    "discard": _("Discard: make no deliveries"),
}


class StateActions(ModelAdmin):
    """The four actions; every one is written to the audit log with the state before."""

    actions = ["pause", "resume_and_release", "resume_and_skip", "discard"]

    @admin.action(description=_("Pause: hold deliveries"), permissions=["operate"])
    def pause(self, request: HttpRequest, queryset: QuerySet[BizReceive]) -> HttpResponse | None:
        return self._change(request, queryset, "pause")

    @admin.action(description=_("Resume and send what was held"), permissions=["operate"])
    def resume_and_release(
        self, request: HttpRequest, queryset: QuerySet[BizReceive]
    ) -> HttpResponse | None:
        return self._change(request, queryset, "resume_and_release")

    @admin.action(description=_("Resume and skip what was held"), permissions=["operate"])
    def resume_and_skip(
        self, request: HttpRequest, queryset: QuerySet[BizReceive]
    ) -> HttpResponse | None:
        return self._change(request, queryset, "resume_and_skip")

    @admin.action(description=_("Discard: make no deliveries"), permissions=["change"])
    def discard(self, request: HttpRequest, queryset: QuerySet[BizReceive]) -> HttpResponse | None:
        return self._change(request, queryset, "discard")

    def _change(
        self, request: HttpRequest, rows: QuerySet[BizReceive], name: str
    ) -> HttpResponse | None:
        if name in _LOSES and "confirmed" not in request.POST:
            # The form names the rows, so that exactly the shown rows change, even when "all" was
            # selected and further rows were added meanwhile.
            selection = list(rows.select_related("biz", "receive")[: MAX_SELECTION + 1])
            if len(selection) > MAX_SELECTION:
                messages.warning(request, gettext("Select at most %d at a time.") % MAX_SELECTION)
                return None
            return show_page(
                self, request, "notify/confirm.html", gettext("Are you sure?"), action=name,
                heading=_TITLES[name], loses=_LOSES[name], rows=selection[:_SHOWN],
                more=max(0, len(selection) - _SHOWN), ids=[str(row.pk) for row in selection],
                checkbox=ACTION_CHECKBOX_NAME, back_to=request.POST.get("back_to", ""),
                list=reverse("admin:notify_bizreceive_changelist"),
            )  # fmt: skip

        ids = list(rows.values_list("pk", flat=True))
        count = operations.change_state(ids, _CHANGES[name], partial(audit, request))
        text = ngettext("%d subscription changed.", "%d subscriptions changed.", count)
        messages.success(request, text % count)
        page_id = request.POST.get("back_to", "")
        if page_id.isdigit():
            return redirect("admin:notify_bizreceive_change", page_id)
        return None


@answers_limited_people
def deliver_now_view(model_admin: ModelAdmin, request: HttpRequest, pk: int) -> HttpResponse:
    """The view of the button: a POST delivers now, and leads to the page `next` with a message."""
    row = model_admin.row_for(request, pk, "operate")
    _deliver_now(request, row)
    next_url = request.POST.get("next", "")
    if url_has_allowed_host_and_scheme(next_url, None):
        return redirect(next_url)
    return redirect("admin:notify_bizreceive_change", pk)


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
    messages.success(request, " ".join(parts))
