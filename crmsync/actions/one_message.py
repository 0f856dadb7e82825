"""One lead or record sent again from its page: to one CRM, or to all where it is dead."""

from __future__ import annotations

from django.utils.translation import gettext as _

from crmsync.messages import policies
from crmsync.messages.lines import RECORD
from crmsync.models import Record
from crmsync.recovery.resend import resend
from msgplatform.api.filters import number
from msgplatform.core.data import sql
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows import Resent


def resend_one(id: str, recipient: str, by: str) -> Resent:
    """Its newest version. Raises InvalidInput when there is no such lead or record, or none yet."""
    records = {record.pk: record for record in _records(id)}
    if not records:
        raise InvalidInput(_("nothing was read of it for a CRM yet"), "id")
    if recipient:
        chosen = number(recipient, "recipient")
        if chosen not in records:
            raise InvalidInput(_("there is no such record"), "recipient")
        wanted = [chosen]
    else:
        wanted = [pk for pk, record in records.items() if record.state == Record.State.DEAD]
    count = resend(wanted, sql.now(), by)
    return Resent(count, len(wanted) - count)


def _records(id: str) -> list[Record]:
    """Of a lead at every CRM, or the one that is named."""
    if id.startswith(RECORD):
        return list(Record.objects.filter(id=number(id.removeprefix(RECORD))))
    hive = policies.of_hive(policies.by_id())
    return list(Record.objects.filter(policy_id__in=hive, key=policies.key_of(number(id))))
