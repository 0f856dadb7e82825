"""One message sent again from its page: as a new message, at most once."""

from __future__ import annotations

from django.utils.translation import gettext as _

from gateway.actions import resend
from gateway.messages import resent
from gateway.models import SgipMt
from gateway.monitor.failures import AGAIN
from msgplatform.api.filters import number
from msgplatform.core.errors import InvalidInput, NotNow
from msgplatform.core.flows import SentAgain


def send_again(id: str, recipient: str) -> SentAgain:
    """Its only recipient is named by the message's own id. Raises RedisError, and InvalidInput for
    a message that is not in the archive; NotNow for one that intake refuses."""
    row = SgipMt.objects.filter(pk=number(id)).first()
    if row is None or recipient not in ("", str(row.pk)):
        raise InvalidInput(_("there is no such message in the archive"), "id")
    if row.final not in AGAIN:
        return SentAgain(0, 1)
    given = {"ids": str(row.pk), "state": row.final}
    begun = resend.step(given, "", 1)
    step = resend.step(given, begun.cursor, 1)
    if step.left_because:
        raise NotNow(step.left_because)
    count = step.done
    new = resent.again_as(row.biz_id, row.pk) if count else ""
    return SentAgain(count, 1 - count, new)
