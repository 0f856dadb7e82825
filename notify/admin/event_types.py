"""The catalogue of event types, and the reference of events. The reference shows the developers of
consumers what consumers get, with the texts of the AsyncAPI document."""

from functools import partial
from typing import Any

import msgspec
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import BooleanField, ExpressionWrapper, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy as _

from msgplatform import person_limits
from msgplatform.doors.admin import (
    AdminPage,
    AutocompleteFilter,
    ModelAdmin,
    ResourceAdmin,
    ResourceForm,
    cells,
)
from msgplatform.doors.admin.fields import JsonField, ObjectField
from msgplatform.doors.admin.pages import show_page
from notify.api.asyncapi import fields, messages
from notify.api.asyncapi.messages import BINARY_HEADERS, CatalogueEntry, Header, Way
from notify.models import EventType
from notify.setup.event_types import SharedEventType
from notify.subscriptions import formats

# -- the reference of events ----------------------------------------------------------------------
_PAGE = 50
_MAX_EXAMPLE = 20_000  # characters that are shown
_AUTHORIZATION = Header("authorization", "", "Bearer mp_…")
_HAS_SCHEMA = ExpressionWrapper(Q(schema__isnull=False), BooleanField())


class Request(msgspec.Struct, frozen=True):
    """A request to a consumer, or to the platform, as text."""

    title: str
    text: str


def reference_page(model_admin: ModelAdmin, request: HttpRequest) -> HttpResponse:
    if not model_admin.has_view_permission(request):
        raise PermissionDenied
    words = request.GET.get("q", "").strip()
    rows = EventType.objects.select_related("biz").defer("example", "schema")
    rows = rows.annotate(with_schema=_HAS_SCHEMA).order_by("name", "owner")
    for word in words.split()[:10]:
        rows = rows.filter(Q(name__icontains=word) | Q(description__icontains=word))
    page = Paginator(rows, _PAGE).get_page(request.GET.get("page"))
    entries = [(row, CatalogueEntry(row).summary) for row in page]
    return show_page(
        model_admin, request, "notify/event_reference.html", gettext("Event reference"), opts=None,
        page=page, entries=entries, words=words, can_add=model_admin.has_add_permission(request),
        document=reverse("asyncapi"),
    )  # fmt: skip


def entry_page(model_admin: ModelAdmin, request: HttpRequest, id: int) -> HttpResponse:
    if not model_admin.has_view_permission(request):
        raise PermissionDenied
    row = get_object_or_404(EventType.objects.select_related("biz"), pk=id)
    entry = CatalogueEntry(row)
    table, is_cut = fields.rows(entry.schema, f"{messages.SCHEMAS}{entry.schema_key}")
    deliveries = []
    for way in Way:
        if way != Way.PUBLISH:
            is_binary = way == Way.CLOUDEVENTS_BINARY
            headers = BINARY_HEADERS if is_binary else messages.WEBHOOK_HEADERS
            text = _request(entry, way, "/your/path", headers)
            deliveries.append(Request(way.label, text))
    return show_page(
        model_admin, request, "notify/event_reference_entry.html", gettext("Event %s") % row.name,
        opts=None, row=row, entry=entry, fields=table, is_cut=is_cut,
        deliveries=deliveries, headers=BINARY_HEADERS,
        publication=_request(entry, Way.PUBLISH, "/api/v1/messages", (_AUTHORIZATION,)),
        can_change=model_admin.has_change_permission(request, row),
        document=f"{reverse('asyncapi')}?event_type={row.name}",
    )  # fmt: skip


def _request(entry: CatalogueEntry, way: Way, address: str, headers: tuple[Header, ...]) -> str:
    content_type = formats.CONTENT_TYPES.get(way, formats.JSON)
    values = {"ce-type": entry.name, **({"ce-source": entry.source} if entry.source else {})}
    lines = [f"{header.name}: {values.get(header.name, header.example)}" for header in headers]
    body = msgspec.json.format(msgspec.json.encode(entry.body(way)), indent=2).decode()
    if len(body) > _MAX_EXAMPLE:
        body = f"{body[:_MAX_EXAMPLE]}…"
    return "\n".join([f"POST {address}", f"content-type: {content_type}", *lines, "", body])


# -- the catalogue ---------------------------------------------------------------------------------
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
    further_pages = [
        AdminPage("reference/", "event_reference", reference_page),
        AdminPage("reference/<int:id>/", "event_reference_entry", entry_page),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[EventType]:
        """The entries without the long columns, which the page of one entry reads."""
        rows: QuerySet[EventType] = super().get_queryset(request)
        return rows.annotate(with_schema=_HAS_SCHEMA).defer("example", "schema")

    def limited_rows(
        self, rows: QuerySet[EventType], system_ids: frozenset[int]
    ) -> QuerySet[EventType]:
        """The entries of these systems, and shared entries, which these systems use too."""
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
        """The name, with the beginning of the description below."""
        first, _line, other_lines = row.description.partition("\n")
        below = f"{first[:160]}…" if other_lines or len(first) > 160 else first
        return cells.lines(row.name, below) if below else row.name

    @admin.display(description=_("schema"))
    def has_schema(self, row: Any) -> str:
        return cells.mark("JSON Schema", "plain") if row.with_schema else cells.nothing("–")
