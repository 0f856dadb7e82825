"""The catalogue of event types."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.contrib import admin
from django.db.models import BooleanField, ExpressionWrapper, Q, QuerySet
from django.http import HttpRequest
from django.urls import URLPattern
from django.utils.translation import gettext_lazy as _

from msgplatform import person_limits
from msgplatform.doors.admin import AutocompleteFilter, ResourceAdmin, ResourceForm, cells
from msgplatform.doors.admin.fields import JsonField, ObjectField
from notify.admin import event_reference
from notify.models import EventType
from notify.setup.event_types import SharedEventType


class EventTypeForm(ResourceForm):
    def clean_personal_fields(self) -> Any:
        return self.cleaned_data["personal_fields"] or []

    def clean_schema(self) -> Any:
        return self.cleaned_data["schema"] or None


@admin.register(EventType)
class EventTypeAdmin(ResourceAdmin):
    resource = SharedEventType
    form = EventTypeForm
    form_fields = {"example": partial(JsonField, rows=10), "schema": partial(ObjectField, rows=14)}
    system_lookup = "biz"
    limited_views = frozenset({"changelist_view", "change_view", "add_view"})
    limited_may_change = True
    list_display = ["entry", "system", "has_schema", "changed_at"]
    list_filter = [("biz", AutocompleteFilter)]
    list_filter_submit = True
    list_select_related = ["biz"]
    search_fields = ["name", "description"]
    search_help_text = _("Event type or words of its description")
    autocomplete_fields = ["biz"]
    ordering = ["name", "owner"]
    list_before_template = "notify/event_types_bar.html"

    def get_urls(self) -> list[URLPattern]:
        return [*event_reference.urls(self), *super().get_urls()]

    def get_queryset(self, request: HttpRequest) -> QuerySet[EventType]:
        """Without the long columns; the page of one entry reads them."""
        rows: QuerySet[EventType] = super().get_queryset(request)
        condition = ExpressionWrapper(Q(schema__isnull=False), BooleanField())
        return rows.annotate(with_schema=condition).defer("example", "schema")

    def limited_rows(
        self, rows: QuerySet[EventType], system_ids: frozenset[int]
    ) -> QuerySet[EventType]:
        """Those that all systems share too: their events may have these types."""
        return rows.filter(Q(biz__in=system_ids) | Q(biz=None))

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        is_shared = obj is not None and obj.biz_id is None
        if is_shared and person_limits.is_limited(request):
            return False
        return super().has_change_permission(request, obj)

    @admin.display(description=_("system"), ordering="biz__name")
    def system(self, row: EventType) -> str:
        return str(row.biz) if row.biz else cells.nothing(str(_("shared by all")))

    @admin.display(description=_("event type"), ordering="name")
    def entry(self, row: EventType) -> str:
        """With the beginning of its description below it."""
        first, _line, rest = row.description.partition("\n")
        below = f"{first[:160]}…" if rest or len(first) > 160 else first
        return cells.lines(row.name, below) if below else row.name

    @admin.display(description=_("schema"))
    def has_schema(self, row: Any) -> str:
        return cells.mark("JSON Schema", "plain") if row.with_schema else cells.nothing("–")
