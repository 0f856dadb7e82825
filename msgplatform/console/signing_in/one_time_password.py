"""A password that the platform made, for the first login only: until its user has chosen another
one, their session opens no page but the one where this is done.

Sessions learn of it at login, so that no page asks the database. `up` makes such a password when
there is no user (`supervision/first_user.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib.auth.signals import user_logged_in
from django.core.exceptions import ValidationError
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _

from msgplatform.models import OneTimePassword

_MUST_CHOOSE = "must_choose_password"


@receiver(user_logged_in, dispatch_uid="one-time-password")
def note_in_session(request: HttpRequest, user: Any, **_more: Any) -> None:
    if OneTimePassword.objects.filter(pk=user.pk).exists():
        request.session[_MUST_CHOOSE] = True


class ChooseFirst:
    """Middleware: a session that began with a one-time password is led to the page where another
    one is chosen."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response
        self._page = reverse("console:choose-password")
        self._open = frozenset({self._page, reverse("admin:logout")})

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.path not in self._open and must_choose(request):
            return redirect(self._page)
        return self._get_response(request)


def must_choose(request: HttpRequest) -> bool:
    """Costs a statement only while it is true."""
    # Programs send no session: theirs need not be looked up.
    if settings.SESSION_COOKIE_NAME not in request.COOKIES or _MUST_CHOOSE not in request.session:
        return False
    if OneTimePassword.objects.filter(pk=request.user.pk).exists():
        return True
    # It was changed elsewhere; then looking at the user has emptied the session, or it goes on.
    request.session.pop(_MUST_CHOOSE, None)
    return False


class NotOneTime:
    """Password validator: refuses the one-time password itself, and ends it with any other."""

    def validate(self, password: str, user: Any = None) -> None:
        is_one_time = user is not None and OneTimePassword.objects.filter(pk=user.pk).exists()
        if is_one_time and user.check_password(password):
            raise ValidationError(_("This is the one-time password. Choose another one."))

    def get_help_text(self) -> str:
        return _("Your password can’t be a one-time password.")

    def password_changed(self, password: str, user: Any = None) -> None:
        OneTimePassword.objects.filter(pk=user.pk).delete()
