"""Middleware around all views: each person's language and time zone, people who are limited to
business systems, sessions that have ended, headers of answers."""

from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.middleware.gzip import GZipMiddleware
from django.middleware.locale import LocaleMiddleware
from django.shortcuts import redirect, resolve_url
from django.utils import timezone, translation
from django.utils.cache import add_never_cache_headers
from django.utils.deprecation import MiddlewareMixin
from django.utils.translation import gettext as _
from rest_framework.permissions import SAFE_METHODS

from msgplatform import person_limits
from msgplatform.core.errors import UNAVAILABLE
from msgplatform.doors.api.access import throttling
from msgplatform.doors.api.problems.error_pages import page_of_form
from msgplatform.doors.api.problems.problem import KINDS, Problem
from msgplatform.models import Preferences

_CALLS = ("/api/", "/rpc/")
# Views at these addresses answer programs with keys, in the platform's language and zone. The
# AsyncAPI document also takes a session, and keeps to the limit itself.
_PROGRAMS = tuple(settings.CONTENT_SECURITY_POLICY["EXCLUDE_URL_PREFIXES"])


class TlsForPrograms(MiddlewareMixin):
    """Refuses what programs send without TLS, where Django would lead them to https.

    Most HTTP libraries repeat a POST as a GET after a redirect. The answer is 200 with a list, and
    the caller believes that its event was stored.
    """

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        is_write = request.method not in SAFE_METHODS and request.path.startswith(_CALLS)
        if settings.SECURE_SSL_REDIRECT and is_write and not request.is_secure():
            return Problem(KINDS["forbidden"], "Use https. Nothing was done.").response()
        return None


class RateLimitMiddleware(MiddlewareMixin):
    """Tells callers of the API how far their limit is, before a 429 does: adds the headers that the
    throttle has put into the request's META."""

    def process_response(self, request: HttpRequest, response: Any) -> Any:
        for name, value in request.META.get(throttling.HEADERS, {}).items():
            response[name] = value
        return response


# The theme's pages below /admin/ set Cache-Control themselves.
_PREFIXES = ("/console/", "/django-rq/")


class NeverStoredMiddleware(MiddlewareMixin):
    """Keeps pages of the console out of every cache, unless a view has set Cache-Control: they show
    payloads and numbers, which must not be seen after the logout."""

    def process_response(self, request: HttpRequest, response: Any) -> Any:
        if request.path.startswith(_PREFIXES) and not response.has_header("Cache-Control"):
            add_never_cache_headers(response)
        return response


class CompressedPages(GZipMiddleware):
    """Django's compression, which hides the length of its input (BREACH), only for pages: a list
    has 250 to 370 kB of HTML. Answers to programs are small or many, and static files are
    compressed when they are collected."""

    def process_response(self, request: HttpRequest, response: Any) -> Any:
        if not response.get("Content-Type", "").startswith("text/html"):
            return response
        return super().process_response(request, response)


class PreferencesMiddleware(LocaleMiddleware):
    """Activates a person's choices, else the browser's language and the platform's zone.

    Both belong to the thread and stay until its next request, because a file may be written after
    the middleware has ended.
    """

    def process_request(self, request: HttpRequest) -> None:
        translation.deactivate()
        timezone.deactivate()
        if request.path.startswith(_PROGRAMS):
            return
        super().process_request(request)
        preferences = None
        # Without a session nobody is signed in: the database is not asked. A view that needs an
        # unavailable database says so itself.
        with suppress(*UNAVAILABLE):
            if settings.SESSION_COOKIE_NAME in request.COOKIES and request.user.is_authenticated:
                preferences = Preferences.objects.filter(pk=request.user.pk).first()
        if preferences is None:
            return
        if preferences.language in dict(settings.LANGUAGES):
            translation.activate(preferences.language)
            request.LANGUAGE_CODE = translation.get_language()
        if preferences.zone:
            timezone.activate(preferences.zone)

    def process_response(self, request: HttpRequest, response: Any) -> HttpResponseBase:
        if request.path.startswith(_PROGRAMS):
            return response  # type: ignore[no-any-return]
        return super().process_response(request, response)


# The pages of signing in and of a person's own second factors.
_SIGN_IN = "/console/sign-in/"


class LimitedPeopleMiddleware(MiddlewareMixin):
    """Lets limited people call the views that declare that they keep to the limit
    (`person_limits.answers_limited_people`, `ModelAdmin.limited_views`), and no others."""

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


class EndedSessionMiddleware(MiddlewareMixin):
    """Changes redirects to the login page, whichever view made them.

    A script that fetches a part of a page gets a 401, instead of a login form inside of the page
    (`static/console/session.js` shows what it says). After a form was sent, the login leads back to
    the page of the form, which cannot be repeated by itself.
    """

    def process_response(self, request: HttpRequest, response: Any) -> Any:
        if response.status_code != HTTPStatus.FOUND or request.user.is_authenticated:
            return response
        login = resolve_url("admin:login")
        if request.path == login or urlsplit(response.headers["Location"]).path != login:
            return response
        # Today's browsers say in a header that a script sent the request, and jQuery and htmx
        # always did.
        headers = request.headers
        is_ajax = headers.get("X-Requested-With") == "XMLHttpRequest" or "HX-Request" in headers
        if is_ajax or headers.get("Sec-Fetch-Dest", "") == "empty":
            text = _("Your session has ended. Log in again; this page stays as it is.")
            return HttpResponse(
                text, status=HTTPStatus.UNAUTHORIZED, content_type="text/plain; charset=utf-8",
                headers={"Cache-Control": "no-store", "X-Session": "ended"},
            )  # fmt: skip
        if request.method != "POST":
            return response
        messages.warning(
            request, _("Your session had ended, so nothing was done. Log in, then do it again.")
        )
        return redirect_to_login(page_of_form(request), login)
