"""Send deliveries again wherever they are: a new generation, as if never tried; the log of
earlier attempts stays. Archived deliveries are brought back first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now

from msgplatform.core.data import claims, transactions
from msgplatform.core.data.chunks import chunks
from notify.archive import stores
from notify.archive.restore import restore
from notify.archive.stores import Store
from notify.maker import ending
from notify.models import ReceiveMsg
from notify.monitor import failures

_Status = ReceiveMsg.Status
FAILED = {
    "exhausted": _Status.EXHAUSTED,
    "poison": _Status.POISON,
    "skipped": _Status.SKIPPED,
}
_ANEW: Mapping[str, Any] = {
    "status": _Status.PENDING,
    "send_times": 0,
    "generation": F("generation") + 1,
    # A failure that is still to be marked carries the old claim and does not apply.
    "claimed_by": "",
    "next_at": Now(),
    "updated_at": Now(),
}
# Deliveries in one statement, and messages in one restore.
CHUNK = 500


def resend_deliveries(
    delivery_ids: Sequence[int], statuses: Collection[int], started_at: datetime
) -> int:
    """Send these deliveries again if they are in one of the statuses; how many were.

    Only deliveries that last changed before `started_at`: a step that is repeated passes over the
    deliveries that it resent.
    When the archive is unavailable its error is raised after the hot deliveries were done.
    """
    # The hot ones first: they need no archive, which may be unavailable.
    resent_count = resend_hot(delivery_ids, statuses, started_at)
    for chunk_ids in chunks(delivery_ids, CHUNK):
        hot_ids = set(ReceiveMsg.objects.filter(id__in=chunk_ids).values_list("id", flat=True))
        if archived_ids := [pk for pk in chunk_ids if pk not in hot_ids]:
            rows = ended(stores.cold(), statuses, started_at).filter(id__in=archived_ids)
            messages = set(rows.order_by().values_list("msg_id", flat=True))
            resent_count += restore(
                sorted(messages), partial(resend_hot, archived_ids, statuses, started_at)
            )
    return resent_count


def resend_hot(delivery_ids: Iterable[int], statuses: Collection[int], started_at: datetime) -> int:
    """The same for deliveries in the hot table; others are passed over."""

    def once(chunk_ids: Sequence[int]) -> int:
        with transaction.atomic():
            # By id alone: for a condition on the status MariaDB might lock by another index.
            rows = ReceiveMsg.objects.select_for_update().filter(id__in=chunk_ids).order_by("id")
            matching_rows = [
                row
                for row in rows.values_list(*failures.COLUMNS, "id")
                if row[0] in statuses and row[4] <= started_at
                if not ending.is_erased(row[0], row[3])
            ]
            if not matching_rows:
                return 0
            failures.take_back_rows(row[:-1] for row in matching_rows)
            deliveries = ReceiveMsg.objects.filter(id__in=[row[-1] for row in matching_rows])
            return claims.update_by_key(deliveries, _ANEW)

    id_chunks = chunks(list(delivery_ids), CHUNK)
    return sum(transactions.retrying(partial(once, chunk_ids)) for chunk_ids in id_chunks)


def ended(store: Store, statuses: Iterable[int], started_at: datetime) -> QuerySet[Any]:
    """The store's deliveries in one of the statuses that last changed before `started_at`, without
    those that an erasure ended."""
    return store.deliveries.filter(is_ended(statuses, started_at))


def is_ended(statuses: Iterable[int], started_at: datetime) -> Q:
    """The condition of `ended`."""
    has_status = Q(status__in=list(statuses), updated_at__lte=started_at)
    return has_status & ~Q(status=_Status.SKIPPED, error=ending.ERASED)
