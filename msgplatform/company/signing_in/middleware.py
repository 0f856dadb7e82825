"""The checks of each signed-in person's request: the list of sessions, and second factors where
they are required."""

from http import HTTPStatus

from django.conf import settings
from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.utils.deprecation import MiddlewareMixin
from django.utils.translation import gettext as _

from msgplatform.company.signing_in import second_factor, sessions
from msgplatform.core.errors import UNAVAILABLE

PREFIX = "/console/sign-in/"
# Open to people who still have to set up their second factor.
_OPEN = (PREFIX, "/console/confirm", "/admin/logout/", "/admin/login/", "/admin/jsi18n/",
         settings.STATIC_URL)  # fmt: skip


class SignInMiddleware(MiddlewareMixin):
    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        # Without a session nobody is signed in, and the database is not asked.
        if settings.SESSION_COOKIE_NAME not in request.COOKIES:
            return None
        try:
            if not request.user.is_authenticated:
                return None
            sessions.note(request)
            if request.path.startswith(_OPEN) or not second_factor.is_missing(request):
                return None
        except UNAVAILABLE:  # a page that needs the database says so
            return None
        text = _("Your role needs a second factor: set up an authenticator app or a security key.")
        if request.method != "GET" or request.headers.get("Sec-Fetch-Dest", "") == "empty":
            return HttpResponse(text, status=HTTPStatus.FORBIDDEN, content_type="text/plain")
        messages.warning(request, text)
        return redirect("mfa_index")

    def process_template_response(
        self, request: HttpRequest, response: TemplateResponse
    ) -> TemplateResponse:
        """Adds the console's frame to the library's pages, whose views do not know it."""
        if request.path.startswith(PREFIX):
            frame = {**admin.site.each_context(request), "title": _("Second factor")}
            response.context_data = {**frame, **(response.context_data or {})}
        return response
