"""Answers the usual publish, and /healthz, in the event loop and without Django; all other requests
go to Django.

Most requests are alike: one item, a valid key, nothing unusual. The fast intake answers these as
Django would, at a third of the cost, and no thread waits for their commit. A request that is
unusual or may be invalid goes to Django untouched: the view of the same address defines which
values are valid, and every error message.
"""

import asyncio
import io
from collections.abc import Iterable
from typing import Any

import msgspec
import structlog
from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpRequest, HttpResponse
from django.middleware.clickjacking import XFrameOptionsMiddleware
from django.middleware.security import SecurityMiddleware
from django.urls import resolve, reverse
from rest_framework.exceptions import APIException
from rest_framework.permissions import SAFE_METHODS

from msgplatform.core.errors import OutcomeUnknown, PlatformError
from msgplatform.core.intake.verdicts import Verdict
from msgplatform.core.tracing import context
from msgplatform.doors.api import health
from msgplatform.doors.api.access import keys, throttling
from msgplatform.doors.api.access.authentication import required_scope
from msgplatform.doors.api.access.key_cache import ApiCaller
from msgplatform.doors.api.intake import SingleIntake, encode_verdict, unquote_key
from msgplatform.doors.api.json import parse
from msgplatform.doors.api.problems import error_pages, handler
from msgplatform.doors.web.bodies import Answer, Headers, of_response

Scope = dict[str, Any]
HeadersByName = dict[bytes, bytes]

# Headers that do not affect a publish, or that the fast intake understands. With any other header a
# request goes to Django.
_PLAIN_HEADERS = frozenset({
    b"accept", b"accept-encoding", b"accept-language", b"authorization", b"cache-control",
    b"connection", b"content-length", b"content-type", b"date", b"forwarded", b"host",
    b"idempotency-key", b"keep-alive", b"pragma", b"traceparent", b"tracestate", b"user-agent",
    b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-port", b"x-forwarded-proto",
    b"x-real-ip", b"x-request-id",
    # Headers of Node's fetch, and of the proxies of AWS and Cloudflare.
    b"sec-fetch-mode", b"x-amzn-trace-id", b"cdn-loop", b"cf-connecting-ip", b"cf-ipcountry",
    b"cf-ray", b"cf-visitor",
})  # fmt: skip
_JSON_TYPES = frozenset({b"application/json", b"application/json; charset=utf-8"})
_ACCEPT = frozenset({b"*/*", b"application/json"})
_BEARER = b"Bearer "
# Maximum of remembered Host headers that are allowed: callers can make up any number.
_MAX_HOSTS = 100


class _Route(msgspec.Struct, frozen=True):
    """A single intake, with the scope and the bound that its view declares."""

    intake: SingleIntake
    scope: str
    max_body_bytes: int
    headers: dict[bool, Headers]  # addresses with TLS and without


class FastIntake:
    """Serves `intakes`. All methods run in the event loop."""

    def __init__(self, intakes: Iterable[SingleIntake]) -> None:
        self._usual_headers = {is_secure: _usual_headers(is_secure) for is_secure in (False, True)}
        self._routes = {intake.path: _route_of(intake, self._usual_headers) for intake in intakes}
        self._health_path = reverse("healthz")
        self._hosts: set[bytes] = set()
        self._only_secure: bool = settings.SECURE_SSL_REDIRECT
        # If other headers may name the host, Django must decide whether it is allowed.
        self._needs_django = settings.USE_X_FORWARDED_HOST or settings.USE_X_FORWARDED_PORT
        self._tls_header: tuple[bytes, str] | None = None
        if settings.SECURE_PROXY_SSL_HEADER:
            variable, value = settings.SECURE_PROXY_SSL_HEADER
            header = variable.removeprefix("HTTP_").replace("_", "-").lower()
            self._tls_header = header.encode(), value

    async def answer(
        self, scope: Scope, headers: HeadersByName, body: bytes, request_id: str
    ) -> Answer | None:
        """The answer that Django would give. None: nothing was done, and Django must answer.
        `headers` has the last header of each name."""
        route = self._routes.get(scope["path"])
        if route is None or scope["method"] != "POST" or scope["query_string"]:
            return None
        if len(headers) != len(scope["headers"]) or not headers.keys() <= _PLAIN_HEADERS:
            return None
        is_secure = self._is_secure(scope, headers)
        if headers.get(b"content-type") not in _JSON_TYPES or b"content-length" not in headers:
            return None
        if headers.get(b"accept", b"*/*") not in _ACCEPT or len(body) > route.max_body_bytes:
            return None
        if self._needs_django or (self._only_secure and not is_secure):
            return None
        if not self._is_good_host(headers.get(b"host", b"")):
            return None
        authorization = headers.get(b"authorization", b"")
        if not authorization.startswith(_BEARER):
            return None
        # The key's owner, if this process knows the key; it must be far from its limit.
        caller = keys.cached_caller(authorization[len(_BEARER) :].decode("latin-1"))
        if caller is None or route.scope not in caller.scopes:
            return None
        if not throttling.is_allowed_without_redis(caller):
            return None
        limits = throttling.headers_without_redis(caller)
        verdict_and_error = _submit(route.intake, caller, headers, body)
        if verdict_and_error is None:
            throttling.give_back(caller)
            return None
        verdict, error = await verdict_and_error
        limit_headers = [(name.lower().encode(), value.encode()) for name, value in limits.items()]
        more_headers = [*route.headers[is_secure], *limit_headers]
        return _answer_of(scope, verdict, error, more_headers, request_id)

    def health(self, scope: Scope, headers: HeadersByName) -> Answer | None:
        """The answer of /healthz, which the event loop gives even while every thread waits; None
        for other requests."""
        if scope["path"] != self._health_path or scope["method"] not in SAFE_METHODS:
            return None
        if not self._is_good_host(headers.get(b"host", b"")):
            return None
        answer = of_response(health.alive(_request_of(scope)))
        usual_headers = self._usual_headers[self._is_secure(scope, headers)]
        return answer._replace(headers=[*answer.headers, *usual_headers])

    def _is_secure(self, scope: Scope, headers: HeadersByName) -> bool:
        """True if the request came over TLS, by the same rules as `HttpRequest.is_secure`."""
        if self._tls_header:
            header, value = self._tls_header
            if header in headers:
                return headers[header].decode("latin-1").partition(",")[0].strip() == value
        return bool(scope["scheme"] == "https")

    def _is_good_host(self, host: bytes) -> bool:
        if host in self._hosts:
            return True
        request = HttpRequest()
        request.META["HTTP_HOST"] = host.decode("latin-1")
        try:
            request.get_host()
        except (DisallowedHost, KeyError):  # KeyError: without a Host it needs the server's name
            return False
        if len(self._hosts) < _MAX_HOSTS:
            self._hosts.add(host)
        return True


def _route_of(intake: SingleIntake, usual_headers: dict[bool, Headers]) -> _Route:
    view_function: Any = resolve(intake.path).func
    view = view_function.view_class()
    view.setup(HttpRequest())
    scope = required_scope(view, "POST")
    if not scope:
        raise TypeError(f"{type(view).__name__} names no scope for POST")
    allow_header = [(b"allow", ", ".join(view.allowed_methods).encode())]
    headers = {is_secure: [*allow_header, *usual] for is_secure, usual in usual_headers.items()}
    return _Route(intake, scope, view.max_body_bytes, headers)


def _usual_headers(is_secure: bool) -> Headers:
    """The headers that Django's middleware adds to every response."""

    def empty(_request: HttpRequest) -> HttpResponse:
        response = HttpResponse()
        del response["Content-Type"]
        return response

    environ = {"REQUEST_METHOD": "POST", "wsgi.input": io.BytesIO(), "wsgi.url_scheme": "http"}
    if is_secure:
        environ["wsgi.url_scheme"] = "https"
        if settings.SECURE_PROXY_SSL_HEADER:
            name, value = settings.SECURE_PROXY_SSL_HEADER
            environ[name] = value
    security = SecurityMiddleware(empty)
    security.redirect = False  # only Django serves redirected requests
    response: Any = XFrameOptionsMiddleware(security)(WSGIRequest(environ))
    return [(name.lower().encode(), value.encode()) for name, value in response.items()]


def _submit(
    intake: SingleIntake, caller: ApiCaller, headers: HeadersByName, body: bytes
) -> asyncio.Future[tuple[Verdict | None, Exception | None]] | None:
    """A future of the verdict or the error. None if the item may be invalid: then nothing was
    done."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[tuple[Verdict | None, Exception | None]] = loop.create_future()

    def settle(verdict: Verdict | None, error: Exception | None) -> None:
        def set_result() -> None:
            if not future.done():  # otherwise the client has left
                future.set_result((verdict, error))

        loop.call_soon_threadsafe(set_result)

    try:
        item = parse(body, intake.body)
        if (header := headers.get(b"idempotency-key")) is not None:
            key = unquote_key(header.decode("latin-1"))
            if item.idempotency_key not in (None, key):
                return None
            item.idempotency_key = key
        with context.of_request(headers.get(b"traceparent", b"").decode("latin-1")):
            intake.submit(caller.biz_id, item, settle)
    except (PlatformError, APIException):
        return None
    return future


def _answer_of(
    scope: Scope,
    verdict: Verdict | None,
    error: Exception | None,
    headers: Headers,
    request_id: str,
) -> Answer:
    try:
        if verdict is None:
            raise error or OutcomeUnknown
        status, body = encode_verdict(verdict)
    except Exception as reason:  # noqa: BLE001 - as Django does around a view
        request = _request_of(scope)
        # Bound here only, because most requests log nothing.
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            response = handler.handle(reason, {"request": request})
            answer = of_response(response or error_pages.server_error(request))
        return answer._replace(headers=[*answer.headers, *headers])
    own_headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    return Answer(status, [*own_headers, *headers], body)


def _request_of(scope: Scope) -> HttpRequest:
    request = HttpRequest()
    request.method, request.path = scope["method"], scope["path"]
    return request
