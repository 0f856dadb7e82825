"""The first user: without one nobody can log in to the console."""

from __future__ import annotations

from contextlib import suppress

from django.contrib.auth import get_user_model
from django.db import IntegrityError, connection

from msgplatform.core import invitations

NAME = "admin"


def link() -> str:
    """The path of the page where the first user chooses a password; '' if it is not needed.

    The superuser `admin` is created, without a password, if there is no user at all. As long as the
    only superuser has no password, and has never logged in, every call makes a link. All links end
    when a password is chosen, and each after PASSWORD_RESET_TIMEOUT. Raises DatabaseError.
    """
    users = get_user_model().objects
    try:
        if not users.exists():
            with suppress(IntegrityError):  # another machine has just created it
                users.create_superuser(NAME)
        superusers = list(users.filter(is_superuser=True, is_active=True)[:2])
        # With a second one somebody else can set the password, and the terminal need not.
        user = superusers[0] if len(superusers) == 1 else None
        if user is None or user.last_login or user.has_usable_password():
            return ""
        return invitations.link(user)
    finally:
        connection.close()
