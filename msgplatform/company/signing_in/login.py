"""The console's passwords. Guesses are slowed down at the login, and also at an open session where
somebody tries to set another password.

Wrong passwords are counted by name and address together, by address, and by name. The last limit is
high, since whoever knows a name could otherwise keep its owner out. A Redis that is unavailable
counts nothing: operators get in when they are needed most.
"""

import math
import threading
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from allauth.core import context
from django import forms
from django.conf import settings
from django.contrib.auth import authenticate
from django.contrib.auth.models import User
from django.forms import ValidationError
from django.http import HttpRequest
from django.utils.translation import gettext, gettext_lazy as _, ngettext

# `msgplatform.doors.admin` has it too, but its site imports this module while it is made.
from unfold.widgets import UnfoldAdminPasswordWidget as PasswordInput

from msgplatform.core import logging
from msgplatform.core.rates.shared import Rate
from msgplatform.doors.api.access import throttling

if TYPE_CHECKING:  # Unfold's is Django's with its own widgets, but has no types
    from django.contrib.admin.forms import (
        AdminAuthenticationForm as AuthenticationForm,
        AdminPasswordChangeForm as OwnPasswordChangeForm,
    )
else:
    from unfold.forms import AdminOwnPasswordChangeForm as OwnPasswordChangeForm, AuthenticationForm

log = logging.get(__name__)

WINDOW_SECONDS = 300
WRONG_FOR_NAME_AND_ADDRESS = 5
WRONG_FROM_ADDRESS = 30
WRONG_FOR_NAME = 100

# A hash takes some tenths of a second of CPU, on purpose. One at a time leaves the other cores to
# publishers, and the small number of waiting logins leaves them the threads.
_hashing = threading.BoundedSemaphore(1)
_waiting_places = threading.BoundedSemaphore(3)
_HASHING_SECONDS = 5.0


class LoginForm(AuthenticationForm):
    """Refuses further guesses before it looks at the password."""

    request: HttpRequest

    def clean(self) -> dict[str, Any]:
        if not settings.LOCAL_PASSWORDS:
            raise ValidationError(gettext("Passwords are switched off on this platform."))
        with _guess(self.request, self.cleaned_data.get("username", "")):
            form_values: dict[str, Any] = super().clean()
        return form_values


class OwnPasswordForm(OwnPasswordChangeForm):
    """Asks for the old password, which is guessed as slowly as at the login."""

    def clean_old_password(self) -> str:
        with _guess(context.request, self.user.get_username()):
            password: str = super().clean_old_password()
        return password


class ConfirmPasswordForm(forms.Form):
    """Asks people who are signed in for their password once more."""

    password = forms.CharField(
        label=_("Password"),
        strip=False,
        widget=PasswordInput(attrs={"autocomplete": "current-password", "autofocus": True}),
    )

    def __init__(self, *args: Any, user: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._user = user

    def clean_password(self) -> str:
        password: str = self.cleaned_data["password"]
        request = context.request
        name = self._user.get_username()
        with _guess(request, name):
            if authenticate(request, username=name, password=password) != self._user:
                raise ValidationError(gettext("This is not your password."))
        return password


@contextmanager
def _guess(request: HttpRequest, name: str) -> Iterator[None]:
    """A block that checks a password, and raises ValidationError for a wrong one. Raises it at once
    after too many wrong ones."""
    if seconds := _seconds_to_wait(request, name, 0):
        minutes = math.ceil(seconds / 60)
        text = ngettext(
            "Too many wrong passwords. Try again in %d minute.",
            "Too many wrong passwords. Try again in %d minutes.",
            minutes,
        )
        raise ValidationError(text % minutes, code="throttled")
    with _one_at_a_time():
        try:
            yield
        except ValidationError:
            # The log must not have the name: people type their password into that field.
            log.warning("login_refused", address=throttling.client_address(request))
            _seconds_to_wait(request, name, 1)
            raise


def _seconds_to_wait(request: HttpRequest, name: str, add: int) -> float:
    """Seconds until another guess may be made for a name, from an address, and for both together;
    `add` counts a wrong one."""
    waits: list[float] = []
    for origin, limit in throttling.origins(request, Rate(WRONG_FROM_ADDRESS, WINDOW_SECONDS)):
        waits.append(throttling.seconds_to_wait(f"login:address:{origin}", limit, add))
    both = Rate(WRONG_FOR_NAME_AND_ADDRESS, WINDOW_SECONDS)
    of_name = Rate(WRONG_FOR_NAME, WINDOW_SECONDS)
    for key in _name_keys(name):
        waits.append(throttling.seconds_to_wait(f"login:{key}", of_name, add))
        # `origin` is the last one, the caller itself.
        waits.append(throttling.seconds_to_wait(f"login:both:{origin} {key}", both, add))
        if not add and max(waits):
            break  # a refused guess costs no query
    return max(waits)


def _name_keys(name: str) -> Iterator[str]:
    """The keys of a name's counters: one for the folded spelling, and, after a query, one for the
    user that the database finds. Collations take more spellings for one name than `fold_name`."""
    folded_name = fold_name(name)
    yield f"name:{folded_name}"
    user_id = User.objects.filter(username=name).values_list("pk", flat=True).first()
    # A name without a user has two counters, too, so that its answer takes as long.
    yield f"user:{user_id}" if user_id else f"nobody:{folded_name}"


def fold_name(name: str) -> str:
    """One form for most spellings that a database may take for the same name: MariaDB's usual
    collations ignore case and accents."""
    parts = unicodedata.normalize("NFKD", name.casefold())
    return "".join(char for char in parts if not unicodedata.combining(char)).strip()


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Raises ValidationError if too many wait already, or the wait takes too long."""
    busy = ValidationError(gettext("Too many people log in at the moment. Try again."))
    if not _waiting_places.acquire(blocking=False):
        raise busy
    try:
        if not _hashing.acquire(timeout=_HASHING_SECONDS):
            raise busy
        try:
            yield
        finally:
            _hashing.release()
    finally:
        _waiting_places.release()
