"""Alerts, open and resolved; people acknowledge and resolve them here."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy as _, ngettext, pgettext, pgettext_lazy

from msgplatform.doors.admin import cells
from msgplatform.doors.admin.base import AdminPage, sees_personal
from msgplatform.doors.admin.filters import PickFilter
from msgplatform.doors.admin.rows import RowsAdmin
from msgplatform.models import Alert
from msgplatform.models.failures import MAX_NOTE
from msgplatform.monitor import alert_store, runbooks
from msgplatform.monitor.watch import of_flows
from msgplatform.person_limits import answers_limited_people

_MAX_EARLIER = 10
_MAX_COUNT = 1000


class StateFilter(PickFilter):
    title = _("state")
    parameter_name = "state"
    options = (
        ("open", pgettext_lazy("alert", "open")), ("unseen", _("open, not acknowledged")),
        # the overview counts these
        ("unseen_other", _("open, not acknowledged, besides failures")),
        ("resolved", _("resolved")),
    )  # fmt: skip

    def queryset(self, request: HttpRequest, queryset: QuerySet[Alert]) -> QuerySet[Alert]:
        open_rows = queryset.filter(open_key__isnull=False)
        match self.value():
            case "open":
                return open_rows
            case "unseen":
                return open_rows.filter(acknowledged_at=None)
            case "unseen_other":
                rows = open_rows.filter(acknowledged_at=None)
                return rows.exclude(kind__in=of_flows.failure_kinds())
            case "resolved":
                return queryset.filter(open_key=None)
        return queryset


class KindFilter(PickFilter):
    title = _("kind")
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(kind, kind) for kind in sorted(runbooks.by_kind())]


@admin.register(Alert)
class AlertAdmin(RowsAdmin):
    limited_views = frozenset({"changelist_view", "change_view"})
    sentence_fields = ("subject", "text", "note")
    empty_text = _("No alert has been raised yet.")
    list_display = ["subject_link", "kind", "times", "first_at", "last_at", "state_mark", "act"]
    list_display_links = None
    list_filter = [StateFilter, KindFilter]
    search_help_text = _("An alert's id")
    page_template = "admin/alert.html"
    actions = ["resolve"]
    further_pages = [
        AdminPage("<int:pk>/do/<slug:what>/", "msgplatform_alert_act", "act_view", is_post=True)
    ]

    def limited_rows(self, rows: QuerySet[Alert], system_ids: frozenset[int]) -> QuerySet[Alert]:
        """The alerts about rows of these systems."""
        return runbooks.of_systems(rows, system_ids)

    @admin.action(description=_("Mark as resolved"), permissions=["operate"])
    def resolve(self, request: HttpRequest, queryset: QuerySet[Alert]) -> None:
        open_ids = queryset.filter(resolved_at=None).values_list("pk", flat=True)[:_MAX_COUNT]
        count = alert_store.resolve(list(open_ids), request.user.get_username())
        text = ngettext("%d alert resolved.", "%d alerts resolved.", count) % count
        messages.success(request, text)

    def mask(self, request: HttpRequest, rows: Iterable[Any]) -> None:
        """Translate first, then mask: masks are for texts in the person's language."""
        translated_rows = list(rows)
        for row in translated_rows:
            row.translate()
        super().mask(request, translated_rows)

    # -- the page of an alert ------------------------------------------------------------------
    def page(self, request: HttpRequest, row: Alert) -> Mapping[str, Any]:
        alerts = Alert.objects.filter(key=row.key).order_by("-id")
        earlier = list(alerts.exclude(pk=row.pk)[:_MAX_EARLIER])
        self.mask(request, earlier)
        button = runbooks.button(row) if row.open_key is not None else None  # with its address
        can_push = button is not None and request.user.has_perm(button[0].permission)
        return {
            "section": runbooks.section(row.kind),
            "section_language": runbooks.language(),
            "anchor": runbooks.anchor(row.kind),
            "link": runbooks.link(row),
            "button": button if can_push else None,
            "link_title": runbooks.link_title(row),
            "is_open": row.open_key is not None,
            "opened": alerts.order_by()[:_MAX_COUNT].count(),
            "earlier": earlier,
            "max_note": MAX_NOTE,
            "note": row.note if sees_personal(request) else "",  # masked texts are never saved
            "seen": _acknowledgement_time(row),
        }

    @answers_limited_people
    def act_view(self, request: HttpRequest, pk: int, what: str) -> HttpResponse:
        """Acknowledge an alert, with a note, or resolve it."""
        self.row(request, pk, change=True)
        row = Alert.objects.get(pk=pk)  # the stored text, for the audit log
        note = request.POST.get("note", "").strip()[:MAX_NOTE]
        if what == "resolve":
            if alert_store.resolve([pk], request.user.get_username()):
                messages.success(
                    request,
                    gettext("It is resolved. If its cause still holds, it opens again by itself."),
                )
        elif what == "acknowledge" and not note:
            messages.error(request, gettext("Say in the note who does what about it."))
        elif what == "acknowledge":
            # Only if the acknowledgement has not changed since the page was made.
            is_as_seen = request.POST.get("seen", "") == _acknowledgement_time(row)
            if is_as_seen and alert_store.acknowledge(row, request.user.get_username(), note):
                messages.success(request, gettext("It is acknowledged, and stays open."))
            else:
                messages.error(
                    request,
                    gettext("Somebody acknowledged or resolved it meanwhile; your note was not "
                            "saved."),
                )  # fmt: skip
        return redirect("admin:msgplatform_alert_change", pk)

    # -- columns ---------------------------------------------------------------------------------
    @admin.display(description=_("alert"))
    def subject_link(self, row: Alert) -> str:
        url = reverse("admin:msgplatform_alert_change", args=[row.pk])
        return cells.link(url, row.subject)

    times = cells.column(_("times"), lambda row: str(row.count))

    @admin.display(description=_("state"))
    def state_mark(self, row: Alert) -> str:
        if row.open_key is None:
            at = cells.moment(row.resolved_at)
            return cells.mark(gettext("resolved"), "plain", below=at)
        if row.acknowledged_at:
            acknowledgement = f"{row.acknowledged_by}: {row.note}"
            return cells.mark(gettext("acknowledged"), "warn", below=cells.cut(acknowledgement))
        return cells.mark(pgettext("alert", "open"), "bad")

    @admin.display(description=_("where to act"))
    def act(self, row: Alert) -> str:
        url = runbooks.link(row)
        return cells.link(url, gettext("Act")) if url else cells.NOTHING


def _acknowledgement_time(row: Alert) -> str:
    """The time of the alert's acknowledgement, by which a new acknowledgement is compared."""
    return row.acknowledged_at.isoformat() if row.acknowledged_at else ""
