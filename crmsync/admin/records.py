"""Records, and calls that failed: what each CRM holds of each row, or why it does not hold it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from crmsync.admin.rows import (
    CrmFilter,
    ErrorFilter,
    NamedRowsAdmin,
    PolicyFilter,
    policy_ids,
    timeline_id,
    timeline_link,
)
from crmsync.messages.reasons import ERROR_CLASSES
from crmsync.models import ExceptionEntry, Record
from msgplatform.admin import IdTimeFilter, RowList, cells, row_id
from msgplatform.admin.filters import ChoiceFilter
from msgplatform.admin.recent_rows import RecentRowsList
from msgplatform.core import personal

_State = Record.State
_TONES = {
    _State.CONFIRMED: "good", _State.DEAD: "bad", _State.RETRY: "warn", _State.WAITING: "plain",
    _State.QUEUED: "plain", _State.DISMISSED: "plain",
}  # fmt: skip


class StateFilter(ChoiceFilter):
    """Names all policies too: the index begins with the policy."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        found = super().queryset(request, queryset)
        return found if found is queryset else found.filter(policy_id__in=policy_ids())


class RecordErrorFilter(ErrorFilter):
    """Only these states have an error class, and with them the condition can use the index."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        found = super().queryset(request, queryset)
        states = (*Record.OPEN, _State.DEAD)
        is_all = found is queryset
        return found if is_all else found.filter(state__in=states, policy_id__in=policy_ids())


class RecordList(RecentRowsList, RowList):
    """An error class is in no index."""


@admin.register(Record)
class RecordAdmin(NamedRowsAdmin):
    list_display = [
        "key_link", "crm", "state_mark", "versions", "id_there", "next_try", "changed",
    ]  # fmt: skip
    list_display_links = None
    list_filter = [CrmFilter, PolicyFilter, ("state", StateFilter), RecordErrorFilter,
                   ("id", IdTimeFilter)]  # fmt: skip
    search_help_text = _("Key, or id in the CRM, whole")
    list_before_template = "admin/recent_bar.html"

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[RecordList]:
        return RecordList

    def indexed_parameters(self, selection: Mapping[str, str], query: str) -> set[str]:
        return {"crm", "policy", "state__exact", "id_since", "id_until", "q"}

    def search_rows(self, rows: QuerySet[Any], text: str) -> QuerySet[Any]:
        """Ask one index at a time: an OR over several ends in a pass over the table."""
        # The key first: ids of CRMs may look like keys.
        for column in ("key", "remote_id"):
            if Record.objects.filter(**{column: text}).exists():
                return rows.filter(**{column: text})
        number = row_id(text)
        return rows.none() if number is None else rows.filter(pk=number)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """A record has no form: its page is its timeline."""
        row = self.row(request, object_id)
        return redirect("console:message", "crmsync", timeline_id(row.pk, row.key, row.is_of_hive))

    @admin.display(description=_("key"))
    def key_link(self, row: Any) -> str:
        return timeline_link(row.pk, row.key, row.is_of_hive)

    @admin.display(description=_("CRM"))
    def crm(self, row: Any) -> str:
        """The CRM, with the source below."""
        return cells.lines(row.crm_name, _("from %s") % row.source_name)

    @admin.display(description=_("id in the CRM"))
    def id_there(self, row: Record) -> str:
        return row.remote_id or cells.NOTHING

    @admin.display(description=_("state"))
    def state_mark(self, row: Record) -> str:
        """The state, with the reason below."""
        state = _State(row.state)
        why = ERROR_CLASSES.get(row.error_class, row.error_class)
        if row.attempt:
            why = _("%(why)s; %(tries)d failed") % {"why": why, "tries": row.attempt}
        return cells.mark(
            str(state.label), _TONES[state], below=str(why if row.error_class else "")
        )

    @admin.display(description=_("version"))
    def versions(self, row: Record) -> str:
        """The newest version, and below the one that the CRM holds, when that is another."""
        if row.sent_version == row.version:
            return str(row.version)
        held = _("the CRM holds %d") % row.sent_version if row.sent_version else _("not sent yet")
        return cells.lines(str(row.version), str(held))

    @admin.display(description=_("next try"))
    def next_try(self, row: Record) -> str:
        # While a record is queued `next_at` is the end of a lease, which says nothing to people.
        is_due = row.state in (_State.WAITING, _State.RETRY)
        return cells.moment(row.next_at) if is_due and row.next_at else cells.NOTHING

    @admin.display(description=_("changed"))
    def changed(self, row: Record) -> str:
        return cells.moment(row.updated_at)


@admin.register(ExceptionEntry)
class ExceptionAdmin(NamedRowsAdmin):
    list_display = ["time", "where", "kind_mark", "says", "records", "operation"]
    list_display_links = None
    list_filter = [CrmFilter, ("id", IdTimeFilter)]
    search_help_text = _("An operation's id")

    def search_rows(self, rows: QuerySet[Any], text: str) -> QuerySet[Any]:
        number = row_id(text)
        return rows.none() if number is None else rows.filter(operation_id=number)

    @admin.display(description=_("time"))
    def time(self, row: ExceptionEntry) -> str:
        return cells.moment(row.at)

    @admin.display(description=_("CRM or source"))
    def where(self, row: Any) -> str:
        return cells.lines(row.crm_name or row.source_name, _("from %s") % row.source_name)

    @admin.display(description=_("kind"))
    def kind_mark(self, row: ExceptionEntry) -> str:
        return cells.mark(row.kind, "warn")

    @admin.display(description=_("what was said"))
    def says(self, row: ExceptionEntry) -> str:
        return cells.cut(personal.in_sentence(row.message), 300)

    @admin.display(description=_("operation"))
    def operation(self, row: ExceptionEntry) -> str:
        if not row.operation_id:
            return cells.NOTHING
        url = reverse("admin:crmsync_operation_change", args=[row.operation_id])
        return cells.link(url, row.operation_id)
