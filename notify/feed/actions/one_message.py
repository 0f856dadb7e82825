"""One event replayed from its page."""

from __future__ import annotations

from django.utils.translation import gettext as _

from msgplatform.api.filters import number
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows import Resent
from notify.feed.actions.replay import replay
from notify.feed.models import EventQueue


def resend(id: str, recipient: str, _by: str) -> Resent:
    """If it was set aside. A post and its event have the same id, and one card."""
    qid = number(id)
    if recipient not in ("", str(qid)) or not EventQueue.objects.filter(pk=qid).exists():
        raise InvalidInput(_("there is no such event"), "id")
    count = replay([qid])
    return Resent(count, 1 - count)
