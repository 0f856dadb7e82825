"""The reference of events: what consumers get, for the people who write them. The texts are those
of the AsyncAPI document."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import BooleanField, ExpressionWrapper, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _

from msgplatform.doors.admin import ModelAdmin
from notify.api.asyncapi import fields
from notify.api.asyncapi.messages import (
    BINARY_HEADERS,
    SCHEMAS,
    WEBHOOK_HEADERS,
    Described,
    Header,
    Way,
)
from notify.models import EventType
from notify.subscriptions import formats

_PAGE = 50
_MAX_EXAMPLE = 20_000  # characters that are shown


@dataclass(frozen=True)
class Request:
    """A request to a consumer, or to the platform, as text."""

    title: str
    text: str


def urls(admin: ModelAdmin) -> list[URLPattern]:
    wrap = admin.admin_site.admin_view
    return [
        path("reference/", wrap(_with(admin, reference)), name="event_reference"),
        path("reference/<int:id>/", wrap(_with(admin, entry)), name="event_reference_entry"),
    ]


def _with(admin: ModelAdmin, view: Any) -> Any:
    """The view for people who may see the catalogue."""

    def allowed(request: HttpRequest, **address: Any) -> HttpResponse:
        if not admin.has_view_permission(request):
            raise PermissionDenied
        context = {**admin.admin_site.each_context(request), "opts": None}
        return TemplateResponse(request, *view(admin, request, context, **address))

    return allowed


def reference(
    admin: ModelAdmin, request: HttpRequest, context: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """The list of all event types, filtered by words."""
    words = request.GET.get("q", "").strip()
    has_schema = ExpressionWrapper(Q(schema__isnull=False), BooleanField())
    rows = EventType.objects.select_related("biz").defer("example", "schema")
    rows = rows.annotate(with_schema=has_schema).order_by("name", "owner")
    for word in words.split()[:10]:
        rows = rows.filter(Q(name__icontains=word) | Q(description__icontains=word))
    page = Paginator(rows, _PAGE).get_page(request.GET.get("page"))
    entries = [(row, Described.of(row).summary) for row in page]
    return "notify/event_reference.html", {
        **context,
        "title": _("Event reference"),
        "page": page,
        "entries": entries,
        "words": words,
        "can_add": admin.has_add_permission(request),
        "document": reverse("asyncapi"),
    }


def entry(
    admin: ModelAdmin, request: HttpRequest, context: dict[str, Any], id: int
) -> tuple[str, dict[str, Any]]:
    """One event type: its fields, headers and requests."""
    row = get_object_or_404(EventType.objects.select_related("biz"), pk=id)
    described = Described.of(row)
    table = fields.rows(described.schema, f"{SCHEMAS}{described.schema_key}")
    return "notify/event_reference_entry.html", {
        **context,
        "title": _("Event %s") % row.name,
        "row": row,
        "entry": described,
        "fields": table,
        "is_cut": len(table) == fields.MAX_ROWS,
        "deliveries": list(_deliveries(described)),
        "publication": _publication(described),
        "headers": BINARY_HEADERS,
        "can_change": admin.has_change_permission(request, row),
        "document": f"{reverse('asyncapi')}?event_type={row.name}",
    }


def _deliveries(entry: Described) -> Iterator[Request]:
    for way in Way:
        if way != Way.PUBLISH:
            headers = BINARY_HEADERS if way == Way.CLOUDEVENTS_BINARY else WEBHOOK_HEADERS
            yield Request(way.label, _request(entry, way, "/your/path", headers))


def _publication(entry: Described) -> str:
    return _request(entry, Way.PUBLISH, "/api/v1/messages", (_AUTHORIZATION,))


_AUTHORIZATION = Header("authorization", "", "Bearer mp_…")


def _request(entry: Described, way: Way, address: str, headers: tuple[Header, ...]) -> str:
    content_type = formats.CONTENT_TYPES.get(way, formats.JSON)
    values = {"ce-type": entry.name, **({"ce-source": entry.source} if entry.source else {})}
    lines = [f"{header.name}: {values.get(header.name, header.example)}" for header in headers]
    body = msgspec.json.format(msgspec.json.encode(entry.body(way)), indent=2).decode()
    if len(body) > _MAX_EXAMPLE:
        body = f"{body[:_MAX_EXAMPLE]}…"
    return "\n".join([f"POST {address}", f"content-type: {content_type}", *lines, "", body])
