"""A new signing secret for a consumer, without a gap: the old one signs along for a while."""

from __future__ import annotations

import hashlib
from datetime import timedelta

from django.db import transaction

from msgplatform.core.data import sql
from msgplatform.core.errors import Conflict, Undecryptable
from notify.models import Receive
from notify.subscriptions import signing

MAX_HOURS = 168


def mark_of(receive: Receive) -> str:
    """A name for the present secret that reveals nothing of it: a hash of 256 random bits. All
    secrets that cannot be decrypted have the same name."""
    secret = _readable_secret(receive)
    return hashlib.sha256(secret.encode()).hexdigest()[:16] if secret else "unreadable"


def rotate(receive_id: int, seen: str, hours: float) -> Receive:
    """Give the consumer a new secret; the present one signs too for `hours` (0 to 168).

    `seen` is the `mark_of` the secret that the operator saw. Raises Conflict when that is not the
    present one: a form that is sent twice must not push the secret that the consumer still uses
    out of the two that sign. A secret that cannot be decrypted is replaced at once. Raises
    Receive.DoesNotExist.
    """
    with transaction.atomic():
        receive = Receive.objects.select_for_update().get(pk=receive_id)
        if mark_of(receive) != seen:
            raise Conflict("the secret was changed meanwhile")
        old = _readable_secret(receive)
        lasts = hours > 0 and bool(old)
        receive.previous_secret = old if lasts else ""
        receive.previous_secret_until = sql.now() + timedelta(hours=hours) if lasts else None
        receive.secret = signing.new_secret()
        receive.save(update_fields=["secret", "previous_secret", "previous_secret_until"])
    return receive


def _readable_secret(receive: Receive) -> str:
    """'' for one that cannot be decrypted."""
    try:
        return str(receive.secret)
    except Undecryptable:
        return ""
