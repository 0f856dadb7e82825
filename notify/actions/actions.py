"""Notify's bulk actions: the deliveries that an action selects, its preview, and the outcome of
resent deliveries."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from django.utils.translation import gettext, gettext_lazy as _
from msgspec.structs import replace

from msgplatform.core.data import ids as id_numbers, sql
from msgplatform.core.flows.actions import BulkAction, Ending
from msgplatform.core.flows.bulk_pages import Described, Preview, Tally
from msgplatform.core.flows.messages import FilterField
from msgplatform.core.flows.page import Hit
from msgplatform.messages import filters
from msgplatform.messages.bulk import bulk_action
from notify import presence
from notify.actions import periods
from notify.actions.resend import FAILED, FailedDeliveries, select_message
from notify.archive import stores
from notify.archive.stores import Store, reading
from notify.messages.fields import EVENT_TYPE, SUBSCRIPTION, statuses
from notify.messages.states import lines as message_lines, local
from notify.models import BizReceive, ReceiveMsg

T = TypeVar("T")
_MAX_BREAKERS = 10
_Status = ReceiveMsg.Status
_ENDINGS: Mapping[int, Ending] = {
    _Status.DELIVERED: "arrived", _Status.EXHAUSTED: "failed", _Status.POISON: "failed",
    _Status.SKIPPED: "failed",
}  # fmt: skip
# A subscription's id, 0 where a job is about messages, and an event type.
Kind = tuple[int, str]


class _Delivery(NamedTuple):
    message: int
    subscription: int
    status: int


def describe_deliveries(delivery_ids: Sequence[int]) -> Described[Kind]:
    """Yield each delivery's id, (subscription, event type), and the time of acceptance."""
    deliveries = _deliveries(delivery_ids)
    types = _types({delivery.message for delivery in deliveries.values()})
    for pk, delivery in deliveries.items():
        kind = delivery.subscription, types.get(delivery.message, "?")
        yield pk, kind, id_numbers.datetime_of(delivery.message)


def describe_messages(message_ids: Sequence[int]) -> Described[Kind]:
    """Yield each message's id, (0, event type), and the time of acceptance."""
    types = _types(message_ids)
    for pk in message_ids:
        yield pk, (0, types.get(pk, "?")), id_numbers.datetime_of(pk)


def show_deliveries(tally: Tally[Kind], started_at: datetime) -> Preview:
    subscription_ids = {subscription for subscription, _event_type in tally.groups}
    subscriptions = BizReceive.objects.select_related("biz", "receive").in_bulk(subscription_ids)
    titles = {
        (pk, event_type): f"{subscriptions.get(pk, pk)} · {event_type}"
        for pk, event_type in tally.groups
    }
    # The preview has a rate limit only when all deliveries are for one subscription.
    limits = [row.rate_limit for row in subscriptions.values()]
    rate_limit = limits[0] if len(limits) == 1 else None
    preview = tally.preview(started_at, titles, _lines(tally.sample), rate_limit)
    return replace(preview, notices=_open_breakers(subscriptions.values()))


def show_messages(tally: Tally[Kind], started_at: datetime) -> Preview:
    titles = {kind: kind[1] for kind in tally.groups}
    return tally.preview(started_at, titles, _message_lines(tally.sample))


def outcome(delivery_ids: Sequence[str]) -> dict[str, Ending]:
    """The outcomes of these deliveries. Raises Unavailable when the archive cannot be read."""
    deliveries = _deliveries(list(map(int, delivery_ids)))
    return {str(pk): _ENDINGS.get(row.status, "waiting") for pk, row in deliveries.items()}


def why_waiting(delivery_ids: Sequence[str]) -> list[str]:
    """A sentence about each open breaker behind which deliveries of these wait."""
    deliveries = _deliveries(list(map(int, delivery_ids))).values()
    ids = {row.subscription for row in deliveries if row.status not in _ENDINGS}
    return _open_breakers(BizReceive.objects.filter(id__in=ids).select_related("biz", "receive"))


def _open_breakers(subscriptions: Iterable[BizReceive]) -> list[str]:
    """A sentence about each subscription whose breaker is open; none when Redis is unavailable."""
    lanes = presence.read_if_available() or {}
    text = gettext(
        "%(subscription)s: its breaker is open. The next probe may go at %(at)s; the others wait "
        "until one succeeds."
    )
    now = sql.now()
    return [
        text % {"subscription": row, "at": local(now + timedelta(seconds=lanes[row.pk].retry_in))}
        for row in subscriptions
        if row.pk in lanes and lanes[row.pk].is_open
    ][:_MAX_BREAKERS]


def lines(delivery_ids: Sequence[str]) -> list[Hit]:
    """The messages of these deliveries, each once. Raises Unavailable as `outcome` does."""
    return _lines(list(map(int, delivery_ids)))


def _lines(delivery_ids: Sequence[int]) -> list[Hit]:
    deliveries = _deliveries(delivery_ids)
    return _message_lines([deliveries[pk].message for pk in delivery_ids if pk in deliveries])


def _deliveries(delivery_ids: Collection[int]) -> dict[int, _Delivery]:
    """The deliveries in both stores, by id."""

    def read(store: Store, ids: list[int]) -> dict[int, _Delivery]:
        rows = store.deliveries.filter(id__in=ids).order_by()
        columns = rows.values_list("id", "msg_id", "biz_receive_id", "status")
        return {pk: _Delivery(*values) for pk, *values in columns}

    return _anywhere(delivery_ids, read)


def _types(message_ids: Collection[int]) -> dict[int, str]:
    """Message id → event type."""
    return _anywhere(
        message_ids,
        lambda store, ids: dict(
            store.messages.filter(id__in=ids).order_by().values_list("id", "event_type")
        ),
    )


def _message_lines(message_ids: Sequence[int]) -> list[Hit]:
    """The messages as a search shows them, in this order, each once."""
    lines_by_id = _anywhere(message_ids, lambda store, ids: message_lines(store, {}, ids))
    return [lines_by_id[pk] for pk in dict.fromkeys(message_ids) if pk in lines_by_id]


def _anywhere(
    ids: Collection[int], read: Callable[[Store, list[int]], dict[int, T]]
) -> dict[int, T]:
    """The results of `read` for these ids, from the store that has each id."""
    answers: dict[int, T] = {}
    for store in stores.both():
        remaining_ids = [pk for pk in ids if pk not in answers]
        if remaining_ids:
            with reading(store):
                answers |= read(store, remaining_ids)
    return answers


_OF_DELIVERIES: Mapping[str, Any] = {
    "describe": describe_deliveries, "show": show_deliveries, "outcome": outcome, "lines": lines,
    "why_waiting": why_waiting,
}  # fmt: skip
_PERIOD = {
    "since": filters.SINCE, "until": filters.UNTIL, "event_type": EVENT_TYPE,
}  # fmt: skip
_STATUS_FIELD = statuses(
    (*FAILED.values(), ReceiveMsg.Status.DELIVERED),
    _("Poison ones need somebody to look at them first; delivered ones are named by their ids"),
    nothing=_("exhausted, unless ids are given"),
)
ACTIONS: Mapping[str, BulkAction] = {
    "resend": bulk_action(
        FailedDeliveries,
        **_OF_DELIVERIES,
        title=_("Send failed deliveries again"),
        fields={
            "subscription": SUBSCRIPTION,
            "biz": filters.BIZ,
            "status": _STATUS_FIELD,
            "answer": filters.answer(
                _("How the last attempt ended, as the page Failures shows it: HTTP 503")
            ),
            "event_type": EVENT_TYPE,
            "since": filters.SINCE,
            "until": filters.UNTIL,
            "failed_since": filters.FAILED_SINCE,
            "ids": filters.ids(
                _("Ids of deliveries or of messages, at most 500. Without a status: "
                  "exhausted, poison and skipped ones; delivered can be asked for too")
            ),
        },
        help=_("Each delivery gets all its attempts anew; the log of earlier attempts stays. "
               "Deliveries that are named by id may be archived: they are brought back."),
        has_message_ids=True,
        select_message=select_message,
    ),
    "replay": bulk_action(
        periods.Replay,
        **_OF_DELIVERIES,
        title=_("Replay since a time"),
        fields={"subscription": SUBSCRIPTION, **_PERIOD},
        help=_("Everything that the subscription should have got is sent again, even what was "
               "delivered. Archived messages are brought back for it. Its filter is not asked "
               "again."),
        required=("subscription", "since"),
    ),
    "replay_failed": bulk_action(
        periods.ReplayFailed,
        **_OF_DELIVERIES,
        title=_("Replay what never succeeded"),
        fields={"subscription": SUBSCRIPTION, "biz": filters.BIZ, **_PERIOD},
        help=_("Exhausted, poison and skipped deliveries are sent again; deliveries that wait for "
               "another attempt are sent now. Archived messages are brought back for it."),
        required=("since",),
    ),
    "backfill": bulk_action(
        periods.select_messages,
        describe=describe_messages,
        show=show_messages,
        title=_("Make missing deliveries"),
        fields={
            "biz": filters.BIZ,
            **_PERIOD,
            "subscription": replace(
                SUBSCRIPTION, help=_("Only for this subscription; empty: for all")
            ),
            "filters": FilterField(
                _("Filters on payloads"),
                kind="choice",
                choices=[("ignored", _("ignored: messages that they leave out, too"))],
                nothing=_("obeyed"),
            ),
        },
        help=_("Each message gets the deliveries that it lacks, such as those for a newer "
               "subscription. Existing deliveries and archived messages stay as they are. The "
               "count is of messages that are looked at."),
        required=("biz", "since"),
    ),
}  # fmt: skip
