"""The audit log in the console: the changes of people, with the values before and after."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _, pgettext_lazy

from msgplatform.core import personal
from msgplatform.core.flows.messages import MAX_ID
from msgplatform.doors.admin import cells
from msgplatform.doors.admin.auditing import changes_of
from msgplatform.doors.admin.base import sees_personal
from msgplatform.doors.admin.filters import IdTimeFilter, PickFilter
from msgplatform.doors.admin.rows import RecentRowsList, RowsAdmin, first_recent
from msgplatform.models import AuditLog

_MAX_SEARCHED = 500  # newest entries whose masked texts are searched
_MAX_ACTIONS = 200  # maximum of actions in the filter


class ActionFilter(PickFilter):
    """A filter by action; each choice costs one dive into the index of actions."""

    title = _("action")
    parameter_name = "action"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        rows = AuditLog.objects.order_by("action").values_list("action", flat=True)
        actions: list[str] = []
        action_name = rows.first()
        while action_name is not None and len(actions) < _MAX_ACTIONS:
            actions.append(action_name)
            action_name = rows.filter(action__gt=action_name).first()
        return [(action, action) for action in actions]


class WhenFilter(IdTimeFilter):
    """A period, as a range of ids: ids of entries are in the order of time, and the list is read by
    ids."""

    column = "pk"

    def bound(self, moment: datetime) -> int:
        """The id of the first entry at this time or later."""
        entries = AuditLog.objects.filter(at__gte=moment).order_by("at", "id")
        return entries.values_list("pk", flat=True).first() or MAX_ID


@admin.register(AuditLog)
class AuditLogAdmin(RowsAdmin):
    sentence_fields = ("target", "detail")
    rows_name = _("audit entries")  # shown below the list; the model's plural is the list's title
    empty_text = _("Nobody has changed anything yet.")
    list_display = ["at", "actor", "action", "target", "what"]
    list_display_links = ["at"]
    list_filter = [ActionFilter, ("at", WhenFilter)]
    search_fields = ["actor", "target"]
    search_help_text = _("A part of who, or of on what")
    list_before_template = "admin/recent_bar.html"
    page_template = "admin/audit_entry.html"
    # No entry is ever deleted, and no index finds a part of a word.
    list_class = RecentRowsList

    def indexed_parameters(self, selection: Mapping[str, str], query: str) -> set[str]:
        return {"action", "at_since", "at_until"}

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Search the texts as this person sees them: a target may name somebody's number."""
        rows, may_repeat = super().get_search_results(request, queryset, search_term)
        text = search_term.strip().lower()
        if not text or sees_personal(request):
            return rows, may_repeat
        # The list applies its limit after this search, so that the search has a limit of its own.
        first_id = first_recent(queryset)
        if first_id is not None:
            rows = rows.filter(pk__gte=first_id)
        newest_rows = rows.order_by("-pk").values_list("pk", "actor", "target")[:_MAX_SEARCHED]
        entry_ids = [
            pk
            for pk, actor, target in newest_rows
            if text in actor.lower() or text in personal.mask_sentence(target).lower()
        ]
        return queryset.filter(pk__in=entry_ids), False

    def search_rows(self, request: HttpRequest, rows: QuerySet[Any], text: str) -> QuerySet[Any]:
        return rows.filter(Q(actor__icontains=text) | Q(target__icontains=text))

    def page(self, request: HttpRequest, row: Any) -> Mapping[str, Any]:
        detail = row.detail if isinstance(row.detail, dict) else {}
        changes = [
            (_words(name), _as_text(before), _as_text(after))
            for name, (before, after) in changes_of(row).items()
        ]
        others = [
            (_words(name), _as_text(value)) for name, value in detail.items() if name != "changes"
        ]
        return {"changes": changes, "others": others}

    @admin.display(description=pgettext_lazy("fields", "changed"))
    def what(self, row: AuditLog) -> str:
        names = ", ".join(_words(name) for name in changes_of(row))
        return cells.cut(names) if names else cells.NOTHING


def _words(name: str) -> str:
    return name.replace("_", " ")


def _as_text(value: Any) -> str:
    """A stored value for people: lists line by line, nothing as a dash."""
    if value is None or value in ("", [], {}):
        return "–"
    if isinstance(value, list):
        return "\n".join(_as_text(part) for part in value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
