"""The first user: without one nobody can log in to the console."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from django.contrib.auth import get_user_model
from django.db import IntegrityError, connection, transaction

from msgplatform.models import OneTimePassword

NAME = "admin"


def make(show: Callable[[str], None]) -> bool:
    """Create the superuser `admin` if there is no user at all; whether it was created.

    `show` gets the password, which is stored nowhere and must be changed at the first login. It is
    called before the commit, so that there is never a user whose password nobody has seen. Raises
    DatabaseError.
    """
    users = get_user_model().objects
    try:
        with transaction.atomic():
            if users.exists():
                return False
            password = secrets.token_urlsafe(12)
            user = users.create_superuser(NAME, password=password)
            OneTimePassword.objects.create(user=user)
            show(password)
    except IntegrityError:  # another machine has just created it: the name is unique
        return False
    finally:
        connection.close()
    return True
