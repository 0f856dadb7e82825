"""Each person's language and time zone, for the pages of the console."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from django.middleware.locale import LocaleMiddleware
from django.utils import timezone, translation

from msgplatform.core.errors import UNAVAILABLE
from msgplatform.models import Preferences

# Answers to programs are in the platform's language and zone, whoever the caller is.
_PROGRAMS = tuple(settings.CONTENT_SECURITY_POLICY["EXCLUDE_URL_PREFIXES"])


class PreferencesMiddleware(LocaleMiddleware):
    """Activates what a person has chosen, else the browser's language and the platform's zone.

    Both belong to a thread, and stay until its next request: a file may be written after the
    middleware has ended.
    """

    def process_request(self, request: HttpRequest) -> None:
        translation.deactivate()
        timezone.deactivate()
        if request.path.startswith(_PROGRAMS):
            return
        super().process_request(request)
        preferences = None
        # Without a session nobody is logged in, and nothing is asked. If the database does not
        # answer, the page says so, if it needs it.
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
