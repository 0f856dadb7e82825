"""MOs of a business system, in the order in which they came into the archive.

A caller that asks "since" the last MO that it has seen misses none. Ids are not in that order: a
long MO has the id of its first part, which may be hours older than its last part.
"""

from collections.abc import Sequence
from datetime import timedelta

import msgspec
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from gateway.models import SgipMo, SmsAccount
from gateway.notifications import iso_time
from msgplatform.core.data import ids, sql

# Seconds. Until then a pump commits the rows that it dated, or MariaDB undoes the transaction of a
# frozen pump (`IDLE_TRANSACTION_SECONDS`). Then the order of the rows is final.
SETTLED = timedelta(seconds=15)
ORDER = ("biz_id", "archived_at", "id")


class Incoming(msgspec.Struct, frozen=True, rename={"sender": "from"}):
    """A message from a handset, with the fields of the event `sms.mo`."""

    id: str
    sender: str
    to: str
    account: str
    text: str
    parts: int
    missing_parts: int
    received_at: str | None


def since(biz: int, message_id: int | None) -> QuerySet[SgipMo]:
    """Messages that were archived after this one, to be ordered by ORDER; None: from the beginning.

    An id that the archive does not have for this system stands for the time at which it was made.
    """
    rows = sql.of_one(SgipMo.objects.all(), "biz_id", biz)
    # Times ahead of the clock are from before the clock went back; `pump.rows` counts on.
    is_settled = Q(archived_at__lte=Now() - SETTLED) | Q(archived_at__gt=Now() + SETTLED)
    rows = rows.filter(is_settled)
    if message_id is None:
        return rows
    seen_row = SgipMo.objects.filter(pk=message_id, biz_id=biz)
    at = seen_row.values_list("archived_at", flat=True).first()
    if at is None:
        return rows.filter(archived_at__gte=ids.datetime_of(message_id))
    # One index has all columns of this condition; databases enter the index at the plain bound.
    is_later = Q(archived_at__gt=at) | Q(archived_at=at, id__gt=message_id)
    return rows.filter(is_later, archived_at__gte=at)


def describe(rows: Sequence[SgipMo]) -> list[Incoming]:
    """The messages of these rows, in their order. One query reads the accounts' names."""
    names = sql.names_by_id(SmsAccount.objects.only("name"), (row.account_id for row in rows))
    return [
        Incoming(
            id=str(row.pk),
            sender=row.user_number,
            to=row.sp_number,
            account=names.get(row.account_id, ""),
            text=row.text,
            parts=row.parts,
            missing_parts=row.missing,
            received_at=iso_time(row.received_at),
        )
        for row in rows
    ]
