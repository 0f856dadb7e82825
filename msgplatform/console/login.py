"""Logging in to the console, with guesses slowed down.

Wrong passwords are counted by name and address together, by address, and by name. The last limit is
high, since whoever knows a name could otherwise keep its owner out. A Redis that is unavailable
counts nothing: operators get in when they are needed most.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from django.forms import ValidationError
from django.utils.translation import gettext, ngettext
from django_redis import get_redis_connection

from msgplatform.api.access.throttling import client_address
from msgplatform.core import logging
from msgplatform.core.connections import RedisError
from msgplatform.core.rates.shared import Quota

if TYPE_CHECKING:  # Unfold's is Django's with its own widgets, but has no types
    from django.contrib.admin.forms import AdminAuthenticationForm as AuthenticationForm
else:
    from unfold.forms import AuthenticationForm

log = logging.get(__name__)

WINDOW_SECONDS = 300.0
WRONG_FOR_NAME_AND_ADDRESS = 5
WRONG_FROM_ADDRESS = 30
WRONG_FOR_NAME = 100

# A hash takes some tenths of a second of CPU, on purpose: one at a time leaves the other cores to
# those who publish.
_hashing = threading.BoundedSemaphore(1)
_HASHING_SECONDS = 5.0

_quota = Quota(lambda: get_redis_connection("default"))


class LoginForm(AuthenticationForm):
    """Refuses further guesses before it looks at the password."""

    def clean(self) -> dict[str, Any]:
        name: str = self.cleaned_data.get("username", "")
        address = client_address(self.request) if self.request else ""
        if not _hashing.acquire(timeout=_HASHING_SECONDS):
            raise ValidationError(gettext("Too many people log in at the moment. Try again."))
        try:
            self._refuse_guesser(name, address)
            cleaned: dict[str, Any] = super().clean()
        finally:
            _hashing.release()
        return cleaned

    def get_invalid_login_error(self) -> ValidationError:
        """Called for a wrong name or password, which is counted here."""
        name = self.cleaned_data.get("username", "")
        address = client_address(self.request) if self.request else ""
        _wait(name, address, 1)
        # Not the name: people type their password into that field.
        log.warning("login_refused", address=address)
        error: ValidationError = super().get_invalid_login_error()
        return error

    def _refuse_guesser(self, name: str, address: str) -> None:
        if waiting := _wait(name, address, 0):
            minutes = math.ceil(waiting / 60)
            log.warning("login_throttled", address=address)
            raise ValidationError(
                ngettext(
                    "Too many wrong passwords. Try again in %d minute.",
                    "Too many wrong passwords. Try again in %d minutes.",
                    minutes,
                )
                % minutes,
                code="throttled",
            )


def _wait(name: str, address: str, add: int) -> float:
    """Seconds until another guess may be made; `add` counts a wrong one."""
    try:
        return max(
            _quota.spend(key, limit, WINDOW_SECONDS, add) for key, limit in _counters(name, address)
        )
    except RedisError as error:
        log.warning("logins_not_counted", why=type(error).__name__)
        return 0.0


def _counters(name: str, address: str) -> Iterator[tuple[str, int]]:
    name = name.casefold()
    yield f"login:both:{address}:{name}", WRONG_FOR_NAME_AND_ADDRESS
    yield f"login:address:{address}", WRONG_FROM_ADDRESS
    yield f"login:name:{name}", WRONG_FOR_NAME
