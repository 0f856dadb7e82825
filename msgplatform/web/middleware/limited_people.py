"""People who are limited to business systems: refused by views that belong to the whole platform."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase
from django.utils.translation import gettext as _

from msgplatform import person_limits

# Views of these addresses answer programs, which have keys. One of them takes a session as well:
# the AsyncAPI document, which keeps to the limit itself.
_PROGRAMS = tuple(settings.CONTENT_SECURITY_POLICY["EXCLUDE_URL_PREFIXES"])

# Of the admin site: they show nothing that is stored, or what an admin's `get_queryset` gives.
_SITE_VIEWS = frozenset({
    "login", "logout", "i18n_javascript", "password_change_done", "autocomplete_view",
})  # fmt: skip


class LimitedPeopleMiddleware:
    """Lets limited people call the views that declare that they keep to the limit
    (`person_limits.answers_limited_people`, `ModelAdmin.limited_views`), and no others."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self._get_response(request)

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], _args: Any, _kwargs: Any
    ) -> None:
        if settings.SESSION_COOKIE_NAME not in request.COOKIES or is_declared(view):
            return
        if request.path.startswith(_PROGRAMS):
            return
        if person_limits.is_limited(request):
            raise PermissionDenied(
                _("This page belongs to the whole platform, and you see some business systems.")
            )


def is_declared(view: Callable[..., Any]) -> bool:
    """True if the view answers limited people."""
    if getattr(getattr(view, "view_class", view), "answers_limited_people", False):
        return True
    if getattr(view, "admin_site", None) is not None and view.__name__ in _SITE_VIEWS:
        return True
    model_admin = getattr(view, "model_admin", None)
    return model_admin is not None and view.__name__ in model_admin.limited_views
