"""Pausing, resuming and discarding subscriptions: one way for the list and for the page of one.

The page of a subscription posts to the list's action with itself as the only selected row. An
action that loses messages asks for confirmation first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from msgplatform.admin import ModelAdmin, audit
from msgplatform.api.filters import MAX_SELECTION
from notify import signals
from notify.models import BizReceive

_Status = BizReceive.Status
# Names that the question shows; the others are counted.
_SHOWN = 20


@dataclass(frozen=True)
class Change:
    """`loses` names the messages that are lost for good; '' without such."""

    audit: str
    to: int
    also: Mapping[str, Any] = field(default_factory=dict)
    loses: Any = ""


_CHANGES = {
    "pause": Change("subscription_paused", _Status.PAUSED),
    "resume_and_release": Change("subscription_resumed", _Status.NORMAL, BizReceive.RESUMED),
    "resume_and_skip": Change(
        "subscription_resumed_skipping",
        _Status.SKIPPING,
        BizReceive.RESUMED,
        _("Deliveries that are held now are skipped: they are never sent."),
    ),
    "discard": Change(
        "subscription_discarded",
        _Status.DISCARDED,
        {},
        _("Deliveries that wait are skipped, and new messages are not delivered to it."),
    ),
}


_TITLES = {
    "resume_and_skip": _("Resume and skip what was held"),
    "discard": _("Discard: make no deliveries"),
}


class StateActions(ModelAdmin):
    """The four actions; every one is written to the audit log with the state before."""

    actions = ["pause", "resume_and_release", "resume_and_skip", "discard"]

    @admin.action(description=_("Pause: hold new deliveries"), permissions=["operate"])
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
        change = _CHANGES[name]
        if change.loses and "confirmed" not in request.POST:
            # The form names the rows themselves: exactly the rows on the page change, even when
            # "all" was selected and others were added meanwhile.
            selection = list(rows.select_related("biz", "receive")[: MAX_SELECTION + 1])
            if len(selection) > MAX_SELECTION:
                messages.warning(request, gettext("Select at most %d at a time.") % MAX_SELECTION)
                return None
            context = {
                **self.admin_site.each_context(request),
                "title": gettext("Are you sure?"), "opts": self.opts, "action": name,
                "heading": _TITLES[name], "loses": change.loses, "rows": selection[:_SHOWN],
                "more": max(0, len(selection) - _SHOWN), "ids": [str(row.pk) for row in selection],
                "checkbox": ACTION_CHECKBOX_NAME, "back_to": request.POST.get("back_to", ""),
                "list": reverse("admin:notify_bizreceive_changelist"),
            }  # fmt: skip
            return TemplateResponse(request, "notify/confirm.html", context)
        count = _apply(request, rows, change)
        text = ngettext("%d subscription changed.", "%d subscriptions changed.", count)
        messages.success(request, text % count)
        page_id = request.POST.get("back_to", "")
        if page_id.isdigit():
            return redirect("admin:notify_bizreceive_change", page_id)
        return None


def _apply(request: HttpRequest, rows: QuerySet[BizReceive], change: Change) -> int:
    """Set the state of the rows that have another one; returns their number."""
    with transaction.atomic():
        # Under lock: the audit log has the state that was replaced, also beside a marker.
        locked_rows = BizReceive.objects.select_for_update().filter(
            pk__in=list(rows.values_list("pk", flat=True))
        )
        changed_rows = [row for row in locked_rows.order_by("pk") if row.status != change.to]
        for row in changed_rows:
            states = [_Status(row.status).name, _Status(change.to).name]
            audit(request, change.audit, f"{row} #{row.pk}", changes={"status": states})
        BizReceive.objects.filter(pk__in=[row.pk for row in changed_rows]).update(
            status=change.to, **change.also
        )
        transaction.on_commit(signals.SUBSCRIPTIONS.send)
    return len(changed_rows)
