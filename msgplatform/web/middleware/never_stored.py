"""Pages of the console stay in no cache: they show payloads and numbers, also after the logout."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponseBase
from django.utils.cache import add_never_cache_headers

# The theme's pages, below /admin/, say so themselves.
_PREFIXES = ("/console/", "/django-rq/")


class NeverStoredMiddleware:
    """Adds Cache-Control where a view has not done so itself."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self._get_response(request)
        if request.path.startswith(_PREFIXES) and not response.has_header("Cache-Control"):
            add_never_cache_headers(response)
        return response
