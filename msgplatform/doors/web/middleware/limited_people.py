"""People who are limited to business systems: refused by views that belong to the platform."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.utils.translation import gettext as _

from msgplatform import person_limits

# Views of these addresses answer programs, which have keys. One of them takes a session as well:
# the AsyncAPI document, which keeps to the limit itself.
_PROGRAMS = tuple(settings.CONTENT_SECURITY_POLICY["EXCLUDE_URL_PREFIXES"])

# Pages by which people sign in, and those about their own sessions and second factors.
_SIGN_IN = "/console/sign-in/"


class LimitedPeopleMiddleware:
    """Lets limited people call the views that declare that they keep to the limit
    (`person_limits.answers_limited_people`, `ModelAdmin.limited_views`), and no others."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self._get_response(request)

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], _args: Any, _kwargs: Any
    ) -> HttpResponseBase | None:
        if settings.SESSION_COOKIE_NAME not in request.COOKIES or person_limits.is_declared(view):
            return None
        if request.path.startswith((*_PROGRAMS, _SIGN_IN)) or not person_limits.is_limited(request):
            return None
        match = request.resolver_match
        if match and match.view_name == "admin:index":  # many pages lead there
            return redirect("console:overview")
        raise PermissionDenied(
            _("This page belongs to the whole platform, and you see some business systems.")
        )
