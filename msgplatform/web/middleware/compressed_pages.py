"""Pages of the console go out compressed: a list has 250 to 370 kB of HTML."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.middleware.gzip import GZipMiddleware


class CompressedPages(GZipMiddleware):
    """Django's compression, which hides the length of what it compresses (BREACH), for pages alone:
    answers to programs are small or many, and files are compressed when they are collected."""

    def process_response(self, request: HttpRequest, response: Any) -> Any:
        if not response.get("Content-Type", "").startswith("text/html"):
            return response
        return super().process_response(request, response)
