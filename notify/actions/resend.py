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
                for row in rows.values_list(*failures.COLUMNS, "id")
                if row[0] in statuses and row[4] <= started_at
                if not ending.is_erased(row[0], row[3])
            ]
            if not matching_rows:
                return 0
            failures.take_back(row[:-1] for row in matching_rows)
            deliveries = ReceiveMsg.objects.filter(id__in=[row[-1] for row in matching_rows])
            return claims.update_by_key(deliveries, _ANEW)

    id_chunks = chunks(list(delivery_ids), CHUNK)
    return sum(transactions.retrying(partial(once, chunk_ids)) for chunk_ids in id_chunks)


def ended(store: Store, statuses: Iterable[int], started_at: datetime) -> QuerySet[Any]:
    """The store's deliveries in one of the statuses that last changed before `started_at`. Without
    deliveries that an erasure ended."""
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
            rows_by_id = rows.values_list(
                "biz_id", "biz_receive_id",
                "id", "msg_id", "updated_at", "status", "http_status", "error",
            )  # fmt: skip
            named_rows = [*rows_by_id.filter(id__in=ids), *rows_by_id.filter(msg_id__in=ids)]
            biz, subscription = (self._values.get(name) for name in ("biz", "subscription"))
            of_filter = [
                row[2:]
                for row in named_rows
                if biz in (None, row[0]) and subscription in (None, row[1])
            ]
            return self._matching(of_filter, store)

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
        columns = ("id", "msg_id", "updated_at", "status", "http_status", "error", "next_at")
        page = list(rows_in_order.values_list(*columns)[:size])
        matching_ids = self._matching([row[:-1] for row in page], stores.hot())
        return [Row(pk, f"{at.isoformat()},{pk}", pk in matching_ids) for pk, *_, at in page]

    def _matching(self, rows: Sequence[tuple[Any, ...]], store: Store) -> set[int]:
        min_id = self._values.get("since", 0)
        below = self._values.get("until", MAX_ID)
        failed_since = self._values.get("failed_since")
        message_by_delivery = {
            delivery_id: message_id
            for delivery_id, message_id, updated_at, *outcome in rows
            if min_id <= message_id < below
            and (failed_since is None or failed_since <= updated_at)
            and updated_at <= self._begun
            and not ending.is_erased(outcome[0], outcome[2])
            and self._values.get("answer") in (None, failures.answer(*outcome))
        }
        # The event type is a column of messages, so it is read last, for the remaining deliveries.
        if "event_type" in self._values and message_by_delivery:
            messages = store.messages.filter(id__in=set(message_by_delivery.values()))
            right = set(
                messages.filter(event_type=self._values["event_type"]).values_list("id", flat=True)
            )
            message_by_delivery = {
                pk: message_id
                for pk, message_id in message_by_delivery.items()
                if message_id in right
            }
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
            if error_rows := list(rows.values_list("id", "status", "error")):
                return {pk: (status, error) for pk, status, error in error_rows}
    return {}
