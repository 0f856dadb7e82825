"""The middleware of `/api/`: what Django's own classes do there, decided once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.core.handlers.exception import convert_exception_to_response
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.middleware.clickjacking import XFrameOptionsMiddleware
from django.middleware.security import SecurityMiddleware

GetResponse = Callable[[HttpRequest], HttpResponseBase]
# Good Host headers that are remembered; the bound is for what a caller makes up.
_HOSTS = 100


class ApiGate:
    """ALLOWED_HOSTS, the redirect to https, the security headers, Content-Length.

    The headers are those that Django's classes add to an empty response, with TLS and without.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response
        # So that the refusal of a host gets the headers too.
        self._checked = convert_exception_to_response(self._with_good_host)
        self._security = SecurityMiddleware(get_response)
        self._headers = {secure: self._usual_headers(secure) for secure in (False, True)}
        self._hosts: set[str] = set()

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        secure = request.is_secure()
        redirect = None if secure else self._security.process_request(request)
        response: Any = redirect or self._checked(request)
        headers = response.headers
        for name, value in self._headers[secure]:
            headers.setdefault(name, value)
        if isinstance(response, HttpResponse) and "Content-Length" not in headers:
            headers["Content-Length"] = str(len(response.content))
        return response

    def _with_good_host(self, request: HttpRequest) -> HttpResponseBase:
        """Raises DisallowedHost."""
        host = request.META.get("HTTP_HOST", "")
        if host not in self._hosts:
            request.get_host()
            forwarded = settings.USE_X_FORWARDED_HOST or settings.USE_X_FORWARDED_PORT
            if host and not forwarded and len(self._hosts) < _HOSTS:
                self._hosts.add(host)
        return self._get_response(request)

    def _usual_headers(self, secure: bool) -> list[tuple[str, str]]:
        request, response = HttpRequest(), HttpResponse()
        request._get_scheme = lambda: "https" if secure else "http"  # type: ignore[attr-defined]
        if settings.SECURE_PROXY_SSL_HEADER:
            name, value = settings.SECURE_PROXY_SSL_HEADER
            request.META[name] = value if secure else ""
        del response["Content-Type"]
        self._security.process_response(request, response)
        XFrameOptionsMiddleware(self._get_response).process_response(request, response)
        return list(response.items())
