"""The caller of a request (an API key in `Authorization: Bearer …`), and the scopes of its key."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from django.http import HttpRequest
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from msgplatform.core import logging
from msgplatform.doors.api.access import keys, throttling
from msgplatform.doors.api.access.key_cache import ApiCaller
from msgplatform.doors.api.problems.problem import MissingScope
from msgplatform.setup.refusals import LimitedKey

if TYPE_CHECKING:  # rest_framework.views imports this module
    from rest_framework.views import APIView

log = logging.get(__name__)

# Stands for a scope that every valid key has.
ANY_SCOPE = "any"


class ApiKeyAuthentication(BaseAuthentication):
    """Sets `request.user` to an ApiCaller. The answer does not show what is wrong with a key."""

    def authenticate(self, request: Request) -> tuple[ApiCaller, int] | None:
        scheme, _, plain = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        caller = find_caller(request, plain)
        if caller is None:
            raise AuthenticationFailed
        return caller, caller.key_id

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="msgplatform"'


def find_caller(request: HttpRequest | Request, key: str) -> ApiCaller | None:
    """The key's owner; None for a wrong key, which is counted. Raises Throttled when this caller
    has sent too many wrong keys to look up another one."""
    caller = keys.verify(key.strip(), admit=partial(throttling.count_wrong_keys, request, 0))
    if caller is None:
        throttling.count_wrong_keys(request, 1)
    return caller


def caller_of(request: Request) -> ApiCaller:
    """The caller. DRF types `user` as a Django user; ours is an ApiCaller."""
    return cast(ApiCaller, request.user)


def required_scope(view: APIView, method: str) -> str | None:
    """The scope that `view.required_scope` names for this method: a string, or method → scope."""
    scope: str | dict[str, str] | None = getattr(view, "required_scope", None)
    if isinstance(scope, dict):
        return scope.get("GET" if method == "HEAD" else method)
    return scope


def answers_limited_keys(view: APIView, method: str) -> bool | None:
    """True if the view answers keys that are limited to business systems, and shows and changes
    only what belongs to them; None when `view.answers_limited_keys` says nothing. The attribute is
    True, False, or the methods for which it is True."""
    methods: bool | tuple[str, ...] | None = getattr(view, "answers_limited_keys", None)
    if isinstance(methods, tuple):
        return ("GET" if method == "HEAD" else method) in methods
    return methods


class HasScope(BasePermission):
    """The key must have the scope that the view names; without a scope a view refuses all keys. A
    key that is limited to business systems is refused by each view that does not declare that it
    keeps to such a limit."""

    message = "This address is closed, because its view names no scope."

    def has_permission(self, request: Request, view: APIView) -> bool:
        caller = request.user
        if caller is None:
            return False  # answered with 401
        method = request.method or ""
        if method == "OPTIONS" or method not in view.allowed_methods:
            return True  # answered with 405: nothing to protect
        scope = required_scope(view, method)
        if scope is None:
            log.error("view_without_scope", view=type(view).__name__, method=method)
            return False
        if scope != ANY_SCOPE and scope not in getattr(caller, "scopes", ()):
            raise MissingScope(scope)
        systems = getattr(caller, "systems", ())
        if systems and not answers_limited_keys(view, method):
            raise LimitedKey(systems)
        return True
