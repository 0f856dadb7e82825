"""Move a chunk of messages: copy by id, verify, delete (see `core.archive.copying`).

The hot rows are locked from the first look until they are deleted, so nothing can change in
between: a resend, a backfill or another archiver waits, and then finds the message as it is or
nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connections, transaction
from django.db.models import CharField, OuterRef, Subquery, Value
from django.db.models.functions import Coalesce, Now

from msgplatform.core.archive.copying import Part
from msgplatform.core.archive.description import delete_whole
from msgplatform.core.archive.router import cold_alias
from msgplatform.core.data import transactions
from msgplatform.core.failpoints import failpoint
from notify.archive.due import Due, forget_restored
from notify.archive.retention import MESSAGES
from notify.models import (
    Attempt,
    BizMsg,
    ColdAttempt,
    ColdBizMsg,
    ColdReceiveMsg,
    IdempotencyKey,
    ReceiveMsg,
    RestoredMsg,
)

_KEY = Subquery(IdempotencyKey.objects.filter(id=OuterRef("id")).values("key"))
_RESTORED = Subquery(RestoredMsg.objects.filter(id=OuterRef("id")).values("restored_at"))
# Columns of the archive that the hot table of messages does not have.
_ADDED = {
    "key": Coalesce(_KEY, Value(""), output_field=CharField()),
    "archived_at": Now(),
    "restored_at": _RESTORED,
}


def move(message_ids: Sequence[int], due: Due) -> int:
    """Move the messages that may still go; returns their number. Can be repeated at any point.

    Raises NotVerified, or OperationalError when a database is unavailable; nothing is lost then.
    """

    def once() -> int:
        with transaction.atomic(durable=True):
            # The messages that may go and their deliveries are locked until the commit.
            messages = BizMsg.objects.select_for_update().filter(
                id__in=sorted(message_ids), state=BizMsg.State.DISTRIBUTED
            )
            statuses: dict[int, set[int]] = {
                pk: set() for pk in messages.order_by("id").values_list("id", flat=True)
            }
            delivery_rows = ReceiveMsg.objects.select_for_update().filter(msg_id__in=list(statuses))
            rows = list(delivery_rows.order_by().values_list("id", "msg_id", "status"))
            for _id, message_id, status in rows:
                statuses[message_id].add(status)
            going = due.find_movable(statuses)
            if not going:
                return 0
            going_ids = set(going)
            deliveries = [pk for pk, message_id, _status in rows if message_id in going_ids]
            parts = [
                Part(BizMsg, ColdBizMsg, "id", going, _ADDED),
                Part(ReceiveMsg, ColdReceiveMsg, "id", deliveries),
                Part(Attempt, ColdAttempt, "copy_id", deliveries),
            ]
            # Committed in the archive before anything is deleted here. An archiver that dies in
            # between leaves rows in the archive that do not count while the hot ones exist; the
            # next move replaces them.
            copy_to_archive(parts)
            failpoint("archiver_after_copy")
            counts = [part.verified() for part in parts]
            failpoint("archiver_after_verify")
            for part, count in reversed(list(zip(parts, counts, strict=True))):
                part.delete(count)
            forget_restored(going)
            failpoint("archiver_before_delete_commit")
        return len(going)

    # An archive that cannot be reached is found out before anything is locked.
    connections[cold_alias()].ensure_connection()
    return transactions.retrying(once)


def copy_to_archive(parts: Sequence[Part]) -> None:
    """Write messages, deliveries and attempts in one transaction of the archive."""
    messages = ColdBizMsg.objects.using(cold_alias()).filter(id__in=parts[0].keys)
    with transaction.atomic(using=cold_alias(), savepoint=False):
        # The table of keys forgets a key after a while. For a message that was brought back since,
        # the archive is the only place that has it.
        keys = dict(messages.exclude(key="").values_list("id", "key"))
        # The rows of a killed archiver, and the former ones of messages that were brought back.
        delete_whole(MESSAGES, parts[0].keys)
        for part in parts:
            part.copy()
        for message_id, key in keys.items():
            messages.filter(id=message_id, key="").update(key=key)
