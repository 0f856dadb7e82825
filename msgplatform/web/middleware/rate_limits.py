"""Tells callers of the API how far their limit is, before a 429 does."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponseBase

from msgplatform.api.access import throttling


class RateLimitMiddleware:
    """Adds the headers that the throttle has left in the request's META."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self._get_response(request)
        for name, value in request.META.get(throttling.HEADERS, {}).items():
            response[name] = value
        return response
