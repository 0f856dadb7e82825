"""The recovery log: dead records with their reasons, and the actions of people on them."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext, gettext_lazy as _, ngettext

from crmsync.admin.operations import personal_or_refuse
from crmsync.admin.request_form import RequestForm, masked_fields, request_of
from crmsync.admin.rows import CrmFilter, ErrorFilter, NamedRowsAdmin, PolicyFilter, timeline_link
from crmsync.messages.explanations import ERROR_CLASSES
from crmsync.models import Record, RecoveryEntry
from crmsync.recovery import actions
from msgplatform.core import personal
from msgplatform.core.errors import InvalidInput
from msgplatform.doors.admin import AdminPage, MomentFilter, PickFilter, audit, cells, row_id
from msgplatform.messages.filters import MAX_SELECTION

_State = RecoveryEntry.State
_TONES = {_State.OPEN: "bad", _State.RETRIED: "plain", _State.SOLVED: "good",
          _State.DISMISSED: "plain"}  # fmt: skip
_ALL = "all"
# Filters of the list, and the filters of a bulk job that mean the same.
_BULK = {"crm": "crm", "policy": "policy", "error": "error_class", "created_at_since": "since",
         "created_at_until": "until"}  # fmt: skip


class StateFilter(PickFilter):
    """Open ones, unless another state is chosen."""

    title = _("state (open, unless you choose another one)")
    parameter_name, options = "state", [*_State.choices, (_ALL, _("every state"))]

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[RecoveryEntry]
    ) -> QuerySet[RecoveryEntry]:
        if self.value() == _ALL:
            return queryset
        state = row_id(self.value())
        return queryset.filter(state=_State.OPEN if state is None else state)


@admin.register(RecoveryEntry)
class RecoveryAdmin(NamedRowsAdmin):
    list_display = ["since", "key_link", "crm", "reason_cell", "tries", "state_mark"]
    list_display_links = ["since"]
    list_filter = [CrmFilter, PolicyFilter, ErrorFilter, StateFilter,
                   ("created_at", MomentFilter)]  # fmt: skip
    search_help_text = _("The whole key of a record, or the whole id of an operation")
    list_before_template = "admin/crmsync/recovery_bar.html"
    page_template = "admin/crmsync/recovery.html"
    actions = ["retry", "dismiss"]
    further_pages = [
        AdminPage("<int:pk>/edit/", "crmsync_recoveryentry_edit", "edit_view", is_post=True),
        AdminPage(
            "<int:pk>/do/<slug:what>/", "crmsync_recoveryentry_act", "act_view", is_post=True
        ),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[RecoveryEntry]:
        # Lists do not show `request`, which may be large.
        return super().get_queryset(request).defer("request")

    def search_rows(self, request: HttpRequest, rows: QuerySet[Any], text: str) -> QuerySet[Any]:
        # Search by records: they have an index on keys, entries have none.
        records = list(Record.objects.filter(key=text).values_list("pk", flat=True)[:MAX_SELECTION])
        if records:
            return rows.filter(record_id__in=records)
        number = row_id(text)
        return rows.none() if number is None else rows.filter(operation_id=number)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        bulk_url = _bulk_url(request.GET.dict())
        return super().changelist_view(request, {"bulk_url": bulk_url} | (extra_context or {}))

    # -- a few at once ---------------------------------------------------------------------------
    @admin.action(description=_("Try again"), permissions=["operate"])
    def retry(self, request: HttpRequest, queryset: QuerySet[RecoveryEntry]) -> None:
        self._act_on(request, queryset, "retry")

    @admin.action(description=_("Dismiss"), permissions=["operate"])
    def dismiss(self, request: HttpRequest, queryset: QuerySet[RecoveryEntry]) -> None:
        self._act_on(request, queryset, "dismiss")

    def _act_on(self, request: HttpRequest, rows: QuerySet[RecoveryEntry], what: str) -> None:
        # A row beyond the limit shows that there are too many.
        ids = list(rows.order_by().values_list("pk", flat=True)[: MAX_SELECTION + 1])
        if len(ids) > MAX_SELECTION:
            text = gettext(
                "More than %d are selected: use “Try all again”, a bulk job that can be slowed "
                "down and stopped."
            )
            messages.warning(request, text % MAX_SELECTION)
        else:
            _act(request, ids, what)

    # -- one -------------------------------------------------------------------------------------
    def page(self, request: HttpRequest, row: Any) -> Mapping[str, Any]:
        dead_request = request_of(row)
        has_record = row.record_id is not None
        return {
            "fields": masked_fields(dead_request, row.field),
            "reason": personal.mask_sentence(row.reason),
            "error": ERROR_CLASSES.get(row.error_class, row.error_class),
            "is_open": row.state == _State.OPEN,
            "timeline": timeline_link(row.record_id, row.key, row.is_of_hive) if has_record else "",
            "may_edit": bool(dead_request and not dead_request.deleted),
            "may_see": request.user.has_perm(personal.PERMISSION),
            "tone": _TONES[_State(row.state)],
        }

    def act_view(self, request: HttpRequest, pk: int, what: str) -> HttpResponse:
        if what not in _ACTS:
            raise Http404
        row = self.row(request, pk, change=True)
        _act(request, [row.pk], what)
        return redirect("admin:crmsync_recoveryentry_change", pk)

    def edit_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """The request's fields in clear, to be corrected and sent; the audit log gets an entry."""
        row = self.row(request, pk, change=True)
        personal_or_refuse(request)
        to_entry = redirect("admin:crmsync_recoveryentry_change", pk)
        dead_request = request_of(row)
        if dead_request is None or dead_request.deleted or row.state != _State.OPEN:
            messages.warning(request, gettext("There is nothing to edit."))
            return to_entry
        form = RequestForm(
            dead_request.fields, row, request.POST if "save" in request.POST else None
        )
        # The entry is written once, when the form is opened: saving shows no new data.
        if not form.is_bound:
            audit(request, "personal_data_shown", f"recovery log {pk}")
        elif form.is_valid():
            try:
                actions.edit_and_retry(pk, form.values(), request.user.get_username())
            except InvalidInput as error:
                form.refuse(error)
            else:
                messages.success(request, gettext("It is sent again with these values."))
                return to_entry
        return self.render_row(
            request, row, template="admin/crmsync/recovery_edit.html", form=form,
            reason=row.reason, title=gettext("Edit and try again"),
        )  # fmt: skip

    # -- columns ---------------------------------------------------------------------------------
    since = cells.column(_("since"), lambda row: cells.moment(row.created_at))

    @admin.display(description=_("record"))
    def key_link(self, row: Any) -> str:
        if row.record_id is None:
            url = reverse("admin:crmsync_operation_change", args=[row.operation_id])
            return cells.link(url, gettext("an operation"))
        return timeline_link(row.record_id, row.key, row.is_of_hive)

    crm = cells.column(
        _("CRM"), lambda row: cells.lines(row.crm_name, gettext("from %s") % row.source_name)
    )

    @admin.display(description=_("why"))
    def reason_cell(self, row: RecoveryEntry) -> str:
        """The CRM's words with the field at fault; below, the class of the error."""
        words = str(ERROR_CLASSES.get(row.error_class, row.error_class))
        reason = personal.mask_sentence(row.reason) or words
        text = f"{row.field}: {reason}" if row.field else reason
        return cells.lines(cells.cut(text, 200), words)

    tries = cells.column(_("tries"), lambda row: str(row.attempts))

    @admin.display(description=_("state"))
    def state_mark(self, row: RecoveryEntry) -> str:
        """The state, with the person who decided it below."""
        state = _State(row.state)
        is_being_read = state == _State.OPEN and row.handled_by
        label = gettext("open, its row is read again") if is_being_read else str(state.label)
        return cells.mark(label, _TONES[state], below=row.handled_by)


def _bulk_url(list_filters: Mapping[str, str]) -> str:
    """The address of a bulk job with the list's filters; '' if a job cannot have these filters."""
    state = list_filters.get("state", "")
    if list_filters.get("q", "").strip() or state not in ("", str(_State.OPEN.value)):
        return ""
    job_filters = {
        _BULK[name]: value for name, value in list_filters.items() if name in _BULK and value
    }
    query = urlencode({"action": "resend", "count": "1"} | job_filters)
    return f"{reverse('console:bulk-flow', args=['crmsync'])}?{query}"


_ACTS = {"retry": actions.retry, "dismiss": actions.dismiss}


def _act(request: HttpRequest, ids: Sequence[int], what: str) -> None:
    """Retry or dismiss these entries, and report their number."""
    count = _ACTS[what](ids, request.user.get_username())
    text = ngettext("%d entry is tried again.", "%d entries are tried again.", count)
    if what == "dismiss":
        text = ngettext(
            "%d entry was dismissed: it is sent again only when its row changes.",
            "%d entries were dismissed: they are sent again only when their rows change.", count,
        )  # fmt: skip
    if count:
        messages.success(request, text % count)
    if skipped_count := len(ids) - count:
        text = ngettext(
            "%d entry was left alone: it is closed, or its record is confirmed already.",
            "%d entries were left alone: they are closed, or their records are confirmed already.",
            skipped_count,
        )
        messages.info(request, text % skipped_count)
