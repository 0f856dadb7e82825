"""Content negotiation with a short cut for JSON, which nearly every caller wants."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

_TAKES_JSON = frozenset({"*/*", "application/json", "application/json, */*"})


class JsonFirst(DefaultContentNegotiation):
    """DRF's negotiation, with a short cut for the usual Accept headers."""

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> Any:
        first = next(iter(renderers))
        meta = request.META
        if (
            first.media_type == "application/json"
            and meta.get("HTTP_ACCEPT", "*/*") in _TAKES_JSON
            and format_suffix is None
            and not meta.get("QUERY_STRING")
        ):
            return first, first.media_type
        return super().select_renderer(request, renderers, format_suffix)
