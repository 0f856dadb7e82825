"""Bring whole messages back from the archive: copy by id, verify, then act on the messages.

These steps are one transaction of the main database, so a message comes back with deliveries ready
to be sent, or does not come back. The rows in the archive stay: the hot rows count, and the next
move replaces the archived rows.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import F, Value

from msgplatform.core.archive.copying import NotVerified
from msgplatform.core.data import transactions
from msgplatform.core.failpoints import failpoint
from notify.archive import stores
from notify.archive.due import bounded_chunks, forget_restored, note_restored
from notify.models import BizMsg

# Columns of the hot tables that the archive does not have.
_MESSAGE: Mapping[str, Any] = {"state": Value(BizMsg.State.DISTRIBUTED.value)}
_DELIVERY: Mapping[str, Any] = {"next_at": F("updated_at"), "claimed_by": Value("")}


def restore(message_ids: Sequence[int], after: Callable[[], int]) -> int:
    """Bring back the messages that are only in the archive, then call `after` in the same
    transaction, a chunk at a time. Returns the sum of the results of `after`. Can be repeated.

    Raises NotVerified, or OperationalError when a database is unavailable. Earlier chunks then stay
    committed.
    """
    total = 0
    for chunk in list(bounded_chunks(sorted(message_ids), stores.cold())):
        restore_chunk = partial(_restore_chunk, chunk, after)
        try:
            total += transactions.retrying(restore_chunk)
        except NotVerified:
            # An archived row may have changed between the copy and its verification, by a rotation
            # of keys or an erasure. Another difference raises the second time too.
            total += transactions.retrying(restore_chunk)
    return total


def _restore_chunk(message_ids: list[int], after: Callable[[], int]) -> int:
    with transaction.atomic(durable=True):
        # The inserted rows are a lock: another process with the same messages waits here.
        hot_ids = _present(stores.hot(), message_ids)
        note_restored([pk for pk in message_ids if pk not in hot_ids])
        # Read once more: another process may have had the lock.
        hot_ids = _present(stores.hot(), message_ids)
        cold = stores.cold()
        archived_ids = _present(cold, message_ids)
        forget_restored([pk for pk in message_ids if pk not in hot_ids | archived_ids])
        coming_ids = [pk for pk in message_ids if pk in archived_ids and pk not in hot_ids]
        deliveries = cold.deliveries_of(coming_ids).order_by("id")
        delivery_ids = list(deliveries.values_list("id", flat=True))
        parts = stores.parts(cold, stores.hot(), coming_ids, delivery_ids, _MESSAGE, _DELIVERY)
        for part in parts:
            part.copy()
        failpoint("restore_after_copy")
        for part in parts:
            part.verify()
        count = after()
        failpoint("restore_before_commit")
    return count


def _present(store: stores.Store, message_ids: list[int]) -> set[int]:
    return set(store.messages.filter(id__in=message_ids).values_list("id", flat=True))
