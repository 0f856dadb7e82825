"""What serves a request: pages with all middleware, the API with what it needs.

An API caller has no session, no cookie and no form, so `/api/`, and what flows name as
`api_prefixes`, passes through `API_MIDDLEWARE` only: the same security headers, host check and
redirect to https as everywhere, nothing about sessions. Django's own chain (`MIDDLEWARE`) serves
everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.core.handlers.exception import convert_exception_to_response
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest
from django.urls import ResolverMatch
from django.utils.log import log_response
from django.utils.module_loading import import_string

from msgplatform.api import later

API_PREFIX = "/api/"
# Addresses without parameters are few; the bound is for what a caller makes up.
_MATCHES = 200

StartResponse = Callable[..., Any]


class ApiHandler(WSGIHandler):
    """Django's handler with the middleware of `API_MIDDLEWARE`; it finds addresses once.

    What listens to `request_started` looks after the thread's database connections, so it is
    sent when there are any; `request_finished` is up to the response, as ever.
    """

    def __init__(self) -> None:
        self._matches: dict[tuple[str, str], ResolverMatch] = {}
        super().__init__()

    def load_middleware(self, is_async: bool = False) -> None:
        self._view_middleware: list[Any] = []
        self._exception_middleware: list[Any] = []
        self._template_response_middleware: list[Any] = []
        handler = convert_exception_to_response(self._get_response)  # type: ignore[attr-defined]
        for path in reversed(settings.API_MIDDLEWARE):
            middleware = import_string(path)(handler)
            self._add_hooks(middleware)
            handler = convert_exception_to_response(middleware)
        self._middleware_chain = handler

    def _add_hooks(self, middleware: Any) -> None:
        """In the order in which Django calls them: views outside in, the others inside out."""
        if hook := getattr(middleware, "process_view", None):
            self._view_middleware.insert(0, hook)
        if hook := getattr(middleware, "process_template_response", None):
            self._template_response_middleware.append(hook)
        if hook := getattr(middleware, "process_exception", None):
            self._exception_middleware.append(hook)

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Any:
        if environ.get("SCRIPT_NAME") or settings.FORCE_SCRIPT_NAME or later.has_connection():
            return super().__call__(environ, start_response)
        response = self.get_response(self.request_class(environ))
        cookies = [("Set-Cookie", c.output(header="")) for c in response.cookies.values()]
        status = f"{response.status_code} {response.reason_phrase}"
        start_response(status, [*response.items(), *cookies])
        return response

    def get_response(self, request: HttpRequest) -> Any:
        """Without a urlconf of the thread's own: what is not set need not be reset."""
        response: Any = self._middleware_chain(request)
        response._resource_closers.append(request.close)
        if response.status_code >= HTTPStatus.BAD_REQUEST:
            arguments = (response.reason_phrase, request.path)
            log_response("%s: %s", *arguments, response=response, request=request)
        return response

    def resolve_request(self, request: HttpRequest) -> ResolverMatch:
        key = (settings.ROOT_URLCONF, request.path_info)
        match = self._matches.get(key)
        if match is None:
            match = super().resolve_request(request)
            if not match.kwargs and not match.args and len(self._matches) < _MATCHES:
                self._matches[key] = match
        request.resolver_match = match
        return match


class Handler:
    """The WSGI application: what begins with `prefixes` to `api`, the rest to `pages`."""

    def __init__(
        self, pages: WSGIHandler, api: WSGIHandler, prefixes: tuple[str, ...] = (API_PREFIX,)
    ) -> None:
        self._pages, self._api, self._prefixes = pages, api, prefixes

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        api = environ.get("PATH_INFO", "").startswith(self._prefixes)
        return (self._api if api else self._pages)(environ, start_response)
