"""Middleware around all views: programs are refused without TLS, callers of the API see their rate
limits, pages of the console are compressed, and no cache stores them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from django.middleware.gzip import GZipMiddleware
from django.utils.cache import add_never_cache_headers
from rest_framework.permissions import SAFE_METHODS

from msgplatform.doors.api.access import throttling
from msgplatform.doors.api.problems.problem import KINDS, Problem

_PROGRAMS = ("/api/", "/rpc/")


class TlsForPrograms:
    """Refuses what programs send without TLS, where Django would lead them to https.

    Most HTTP libraries repeat a POST as a GET after a redirect. That is answered by 200 with a
    list, and the caller believes that its event was stored.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response
        self._is_on: bool = settings.SECURE_SSL_REDIRECT

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        writes = request.method not in SAFE_METHODS and request.path.startswith(_PROGRAMS)
        if self._is_on and writes and not request.is_secure():
            return Problem(KINDS["forbidden"], "Use https. Nothing was done.").response()
        return self._get_response(request)


class RateLimitMiddleware:
    """Tells callers of the API how far their limit is, before a 429 does: adds the headers that the
    throttle has put into the request's META."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self._get_response(request)
        for name, value in request.META.get(throttling.HEADERS, {}).items():
            response[name] = value
        return response


# The theme's pages, below /admin/, set Cache-Control themselves.
_PREFIXES = ("/console/", "/django-rq/")


class NeverStoredMiddleware:
    """Keeps pages of the console out of every cache, unless a view has set Cache-Control: they show
    payloads and numbers, which must not be seen after the logout."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self._get_response(request)
        if request.path.startswith(_PREFIXES) and not response.has_header("Cache-Control"):
            add_never_cache_headers(response)
        return response


class CompressedPages(GZipMiddleware):
    """Django's compression, which hides the length of its input (BREACH), for pages alone: a list
    has 250 to 370 kB of HTML. Answers to programs are small or many, and static files are
    compressed when they are collected."""

    def process_response(self, request: HttpRequest, response: Any) -> Any:
        if not response.get("Content-Type", "").startswith("text/html"):
            return response
        return super().process_response(request, response)
