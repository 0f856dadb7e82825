"""Content negotiation with a short cut for JSON, which nearly every caller wants."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rest_framework.exceptions import NotAcceptable
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

from msgplatform.api.problems.problem import CONTENT_TYPE

JSON = "application/json"
_TAKES_JSON = frozenset({"*/*", JSON, f"{JSON}, */*", CONTENT_TYPE})


class JsonFirst(DefaultContentNegotiation):
    """DRF's negotiation, with a short cut for the usual Accept headers.

    Generated clients name `application/problem+json` alone where the document has no other answer,
    that is for each operation whose success has no body. Any Accept header suits those: DELETE, and
    the methods that a view names in `bodiless_methods`.
    """

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> Any:
        first = next(iter(renderers))
        if first.media_type != JSON:
            return super().select_renderer(request, renderers, format_suffix)
        meta = request.META
        if (
            meta.get("HTTP_ACCEPT", "*/*") in _TAKES_JSON
            and format_suffix is None
            and not meta.get("QUERY_STRING")
        ):
            return first, JSON
        try:
            return super().select_renderer(request, renderers, format_suffix)
        except NotAcceptable:
            if accepts_problems(meta.get("HTTP_ACCEPT", "")) or is_bodiless(request):
                return first, JSON
            raise


def accepts_problems(accept: str) -> bool:
    """True if the header names the media type of errors, with or without parameters."""
    ranges = (part.partition(";")[0].strip().lower() for part in accept.split(","))
    return CONTENT_TYPE in ranges


def is_bodiless(request: Request) -> bool:
    """True if no success of the operation has a body."""
    view = request.parser_context.get("view") if request.parser_context else None
    return request.method == "DELETE" or request.method in getattr(view, "bodiless_methods", ())
