"""Resend deliveries, hot or archived: a new generation, as if never tried; the log of earlier
attempts stays. Archived deliveries are brought back first. The bulk action resends deliveries that
ended without success, or deliveries that a person names."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now
from django.utils.translation import gettext as _

from msgplatform.core.data import chunks, claims, engines, sql, transactions
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.actions import Applied
from msgplatform.core.flows.bulk_pages import Page, read_id, read_time
from msgplatform.core.flows.messages import MAX_ID, Values
from msgplatform.messages.bulk import Row, select_in_places
from msgplatform.messages.filters import number
from notify.archive import stores
from notify.archive.restore import restore
from notify.archive.stores import Store, reading
from notify.maker import ending
from notify.models import BizReceive, ReceiveMsg, first_due
from notify.monitor import failures

_Status = ReceiveMsg.Status
FAILED = {"exhausted": _Status.EXHAUSTED, "poison": _Status.POISON, "skipped": _Status.SKIPPED}
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
_COLUMNS = ("id", "msg_id", *failures.COLUMNS)  # of a delivery, which a filter checks


def resend_deliveries(
    delivery_ids: Sequence[int], statuses: Collection[int], started_at: datetime
) -> int:
    """Resend these deliveries if they are in one of the statuses; returns the number resent.

    A delivery is skipped if it changed after `started_at`, so that a repeated step does not resend
    a delivery twice.
    When the archive is unavailable its error is raised after the hot deliveries were resent.
    """
    # Hot deliveries first, because they need no archive, which may be unavailable.
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
    """Do as `resend_deliveries`, for deliveries in the hot table; other deliveries are skipped."""

    def once(chunk_ids: Sequence[int]) -> int:
        with transaction.atomic():
            # WHERE has the id alone: with the status MariaDB might lock rows by another index.
            rows = ReceiveMsg.objects.select_for_update().filter(id__in=chunk_ids).order_by("id")
            matching_rows = [
                row
                for row in rows.values_list(*failures.COLUMNS, "id", named=True)
                if row.status in statuses
                and row.updated_at <= started_at
                and not ending.is_erased(row.status, row.error)
            ]
            if not matching_rows:
                return 0
            failures.take_back(row[:-1] for row in matching_rows)
            deliveries = ReceiveMsg.objects.filter(id__in=[row.id for row in matching_rows])
            return claims.update_by_key(deliveries, _ANEW)

    id_chunks = chunks(list(delivery_ids), CHUNK)
    return sum(transactions.retrying(partial(once, chunk_ids)) for chunk_ids in id_chunks)


def ended(store: Store, statuses: Iterable[int], started_at: datetime) -> QuerySet[Any]:
    """The store's deliveries in one of the statuses that have not changed since `started_at`.
    Without deliveries that an erasure ended."""
    return store.deliveries.filter(is_ended(statuses, started_at))


def is_ended(statuses: Iterable[int], started_at: datetime) -> Q:
    """The condition of `ended`."""
    has_status = Q(status__in=list(statuses), updated_at__lte=started_at)
    return has_status & ~Q(status=_Status.SKIPPED, error=ending.ERASED)


class FailedDeliveries:
    """The bulk action: deliveries that ended without success, by status and the other filters.

    Deliveries named by id may be archived, and may have succeeded. A filter finds hot deliveries.
    """

    def __init__(
        self, values: Values, started_at: datetime, statuses: Collection[int] = ()
    ) -> None:
        is_named = "ids" in values
        choices = {**FAILED, "delivered": ReceiveMsg.Status.DELIVERED} if is_named else FAILED
        status = values.get("status")
        if status not in (None, *choices):
            raise InvalidInput(_("use one of %s") % ", ".join(choices), "status")
        self._values, self._begun = values, started_at
        # Without a status only exhausted deliveries: a person must look at poison first.
        default = FAILED.values() if is_named else [ReceiveMsg.Status.EXHAUSTED]
        self._statuses = list(statuses) or ([choices[status]] if status else list(default))

    def apply(self, ids: Sequence[int]) -> Applied:
        return Applied(resend_deliveries(ids, self._statuses, self._begun))

    def page(self, position: str, limit: int) -> Page:
        if "ids" in self._values:
            last_id = read_id(position)
            remaining_ids = [pk for pk in self._values["ids"] if pk > last_id]
            page_ids = remaining_ids[:limit]
            # A message's id means all its deliveries. A delivery that was brought back has an old
            # row in the archive; its hot row counts.
            ids = self._find_named(stores.hot(), page_ids)
            archived_ids = self._find_named(stores.cold(), page_ids) - ids
            restored_ids = set(
                ReceiveMsg.objects.filter(id__in=archived_ids).values_list("id", flat=True)
            )
            if restored_ids:  # deliveries may have come back since the first read
                ids |= self._find_named(stores.hot(), page_ids)
            ids |= archived_ids - restored_ids
            return Page(sorted(ids), str(page_ids[-1]) if len(remaining_ids) > limit else "")
        rows = BizReceive.objects.filter(id__gte=read_id(position.partition(",")[0]))
        if "subscription" in self._values:
            rows = rows.filter(id=self._values["subscription"])
        if "biz" in self._values:
            rows = rows.filter(biz_id=self._values["biz"])
        # The subscriptions from the position on. Each costs an index dive.
        pairs = rows.values_list("id", first_due(self._statuses[0]))
        return select_in_places(
            [subscription for subscription, next_at in pairs if next_at is not None],
            self._read,
            position,
            limit,
        )

    def _find_named(self, store: Store, ids: Sequence[int]) -> set[int]:
        with reading(store):
            rows = ended(store, self._statuses, self._begun).order_by()
            columns = rows.values_list("biz_id", *_COLUMNS, named=True)
            biz, subscription = (self._values.get(name) for name in ("biz", "subscription"))
            matching_rows = [
                row
                for row in (*columns.filter(id__in=ids), *columns.filter(msg_id__in=ids))
                if biz in (None, row.biz_id) and subscription in (None, row.biz_receive_id)
            ]
            return self._matching(matching_rows, store)

    def _read(self, subscription: int, key: str, size: int) -> list[Row]:
        """Read a page in the order of the index (status, biz_receive, next_at), so that every page
        costs the same. A key is the time and the id of a delivery.

        Where one time may be stored in two ways, pages are by id, and each page is sorted.
        """
        rows = ReceiveMsg.objects.filter(status=self._statuses[0], biz_receive_id=subscription)
        by_time = engines.of().has_exact_times
        if key:
            time_text, _comma, id_text = key.partition(",")
            next_at, last_id = read_time(time_text), read_id(id_text)
            condition = Q(id__gt=last_id)
            if by_time:
                condition |= Q(next_at__gt=next_at)
                rows = rows.filter(next_at__gte=next_at)
            rows = rows.filter(condition)
        rows_in_order = rows.order_by("next_at", "id") if by_time else rows.order_by("id")
        page = list(rows_in_order.values_list(*_COLUMNS, "next_at", named=True)[:size])
        matching_ids = self._matching(page, stores.hot())
        return [
            Row(row.id, f"{row.next_at.isoformat()},{row.id}", row.id in matching_ids)
            for row in page
        ]

    def _matching(self, rows: Iterable[Any], store: Store) -> set[int]:
        """The ids of deliveries that match the filter. `rows` have _COLUMNS of the store's rows."""
        min_id, below = self._values.get("since", 0), self._values.get("until", MAX_ID)
        failed_since = self._values.get("failed_since")
        message_by_delivery = {
            row.id: row.msg_id
            for row in rows
            if min_id <= row.msg_id < below
            and (failed_since is None or failed_since <= row.updated_at)
            and row.updated_at <= self._begun
            and not ending.is_erased(row.status, row.error)
            and self._values.get("answer")
            in (None, failures.answer(row.status, row.http_status, row.error))
        }
        # The event type is a column of messages, so it is read last, for the remaining deliveries.
        if "event_type" in self._values and message_by_delivery:
            messages = store.messages.filter(id__in=set(message_by_delivery.values()))
            messages = messages.filter(event_type=self._values["event_type"])
            ids = set(messages.values_list("id", flat=True))
            return {pk for pk, message_id in message_by_delivery.items() if message_id in ids}
        return set(message_by_delivery)


# -- one message from its page -------------------------------------------------------------------
# A delivery that somebody names may be delivered, or wait for its next attempt.
_NAMED = (*FAILED.values(), ReceiveMsg.Status.DELIVERED, ReceiveMsg.Status.PENDING)


def select_message(id: str, recipient: str, _by: str) -> tuple[FailedDeliveries, list[int]]:
    """One delivery of a message, or its deliveries that did not arrive. Raises InvalidInput for an
    unknown message or delivery, Unavailable when the archive is needed and cannot be read."""
    deliveries = _deliveries(number(id))
    if not deliveries:
        raise InvalidInput(_("there is no such message"), "id")
    if recipient:
        delivery = number(recipient, "recipient")
        if delivery not in deliveries:
            raise InvalidInput(_("there is no such delivery"), "recipient")
        ids, statuses = [delivery], _NAMED
    else:
        statuses = tuple(FAILED.values())
        ids = [
            pk
            for pk, (status, error) in deliveries.items()
            if status in statuses and not ending.is_erased(status, error)
        ]
    return FailedDeliveries({"ids": tuple(ids)}, sql.now(), statuses), ids


def _deliveries(message_id: int) -> dict[int, tuple[int, str]]:
    """Delivery id → (status, error), from the hot tables, else from the archive."""
    for store in stores.both():
        with reading(store):
            rows = store.deliveries_of([message_id]).order_by("id")
            if deliveries := list(rows.values_list("id", "status", "error")):
                return {pk: (status, error) for pk, status, error in deliveries}
    return {}
