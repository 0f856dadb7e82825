"""Sessions that have ended: the login leads back to the page, and says that nothing was done."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import urlsplit

from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import resolve_url
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _

Answer = Callable[[HttpRequest], HttpResponseBase]


class EndedSessionMiddleware:
    """Changes redirects to the login page, whichever view made them.

    A script that fetches a part of a page gets a 401, instead of a login form inside of the page
    (`static/console/session.js` shows what it says). After a form was sent, the login leads back to
    the page of the form, which cannot be repeated by itself.
    """

    def __init__(self, get_response: Answer) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self._get_response(request)
        if response.status_code != HTTPStatus.FOUND or request.user.is_authenticated:
            return response
        login = resolve_url("admin:login")
        if request.path == login or urlsplit(response.headers["Location"]).path != login:
            return response
        # Today's browsers say in a header that a script sent the request, and jQuery and htmx
        # always did.
        headers = request.headers
        by_library = headers.get("X-Requested-With") == "XMLHttpRequest" or "HX-Request" in headers
        if by_library or headers.get("Sec-Fetch-Dest", "") == "empty":
            text = _("Your session has ended. Log in again; this page stays as it is.")
            return HttpResponse(
                text, status=HTTPStatus.UNAUTHORIZED, content_type="text/plain; charset=utf-8",
                headers={"Cache-Control": "no-store", "X-Session": "ended"},
            )  # fmt: skip
        if request.method != "POST":
            return response
        messages.warning(
            request,
            _("Your session had ended, so nothing was done. Log in, then do it again."),
        )
        # Back to the page of the form that was sent, as a path of our own; else to the console.
        page = urlsplit(headers.get("Referer", ""))
        path = page._replace(scheme="", netloc="", fragment="").geturl()
        is_ours = page.netloc == request.get_host() and url_has_allowed_host_and_scheme(path, None)
        next_url = path if is_ours else resolve_url("console:overview")
        return redirect_to_login(next_url, login)
