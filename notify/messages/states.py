"""States of a message and of its deliveries: names, colours, their text in a list; and the lines of
messages in a list."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any

import msgspec
from django.db.models import Count, Max, Min, QuerySet
from django.urls import reverse
from django.utils import formats, timezone
from django.utils.translation import gettext as _, ngettext

from msgplatform.core.data import sql
from msgplatform.core.flows.messages import Values
from msgplatform.core.flows.page import Hit, Tone
from msgplatform.core.lazy_text import join_words
from msgplatform.models import Biz
from msgplatform.monitor.failure_groups import answer_title
from notify.archive.stores import Store
from notify.models import BizMsg, BizReceive, ReceiveMsg

_MAX_ANSWERS = 3  # in one line
_MAX_SUBSCRIPTIONS = 50  # for one URL
Status = ReceiveMsg.Status
ACCEPTED = "accepted"  # of a message that has no deliveries yet
STATUSES = {status.name.lower(): status for status in Status}
TONES: Mapping[int, Tone] = {
    Status.DELIVERED: "good", Status.EXHAUSTED: "bad", Status.POISON: "bad",
    Status.HELD: "warn", Status.SKIPPED: "plain", Status.PENDING: "plain", Status.QUEUED: "plain",
}  # fmt: skip


def summary(state: int, counts: Mapping[int, int], is_archived: bool) -> str:
    """The text of a message's state. `counts`: status → number of its deliveries."""
    if state == BizMsg.State.ACCEPTED:
        return str(BizMsg.State.ACCEPTED.label)
    is_alone = len(counts) == 1
    parts = [
        str(Status(status).label) + ("" if is_alone else f" {count}")
        for status, count in sorted(counts.items())
    ]
    text = join_words(parts) or _("no subscriber")
    return _("%s (archived)") % text if is_archived else text


def tone(statuses: Collection[int]) -> Tone:
    """The colour of a message with deliveries in these statuses: the colour of the worst status."""
    tones = {TONES[status] for status in statuses}
    for worst in ("bad", "warn", "plain"):
        if worst in tones:
            return worst
    return "good" if tones else "plain"


def answer(row: Any) -> str:
    """The title of the answer of a delivery's last attempt, or of an attempt: HTTP 503, timeout."""
    return f"HTTP {row.http_status}" if row.http_status else answer_title(str(row.error))


def consumer_name(subscription: BizReceive | None, subscription_id: int) -> str:
    if subscription is None:
        return _("subscription %d, which was deleted") % subscription_id
    return str(subscription.receive)


def local(moment: datetime) -> str:
    """A time in the console's format and the person's time zone."""
    return str(formats.date_format(timezone.localtime(moment), "Y-m-d H:i:s"))


class _Group(msgspec.Struct, frozen=True):
    """Deliveries of one message that have the same status and the same last answer."""

    status: int
    http_status: int
    error: str
    count: int
    attempts: int  # the most attempts of a delivery
    subscription: int  # the lowest id
    changed_at: datetime  # the latest change
    next_at: datetime | None = None  # the earliest time


def lines(store: Store, values: Values, message_ids: Sequence[int]) -> dict[int, Hit]:
    """Message id → line; costs at most five queries. With a subscription in the filter a line shows
    the state of the delivery for this subscription."""
    columns = ["id", "event_type", "channel", "biz_id", "created_at"]
    columns += [] if store.cold else ["state"]
    rows = list(store.messages.filter(id__in=message_ids).order_by().values(*columns))
    systems = sql.names_by_id(Biz.objects.all(), (row["biz_id"] for row in rows))
    deliveries = store.deliveries_of(message_ids)
    groups = _groups(store, deliveries)
    groups_of_interest = groups
    if "subscription" in values:
        deliveries = deliveries.filter(biz_receive_id=values["subscription"])
        groups_of_interest = _groups(store, deliveries)
    # Only a group with one delivery names its consumer.
    all_groups = chain.from_iterable(groups_of_interest.values())
    ids = {group.subscription for group in all_groups if group.count == 1}
    subscriptions = BizReceive.objects.select_related("receive").in_bulk(ids)
    hits: dict[int, Hit] = {}
    for row in rows:
        message_id = row["id"]
        counts: Counter[int] = Counter()
        for group in groups[message_id]:
            counts[group.status] += group.count
        state = row.get("state", BizMsg.State.DISTRIBUTED)
        parts = groups_of_interest[message_id]
        changed_at = max((group.changed_at for group in parts), default=None)
        details = [_("channel %s") % row["channel"]] if row["channel"] else []
        if len(parts) == 1 and parts[0].count == 1:
            details.append(_name(parts[0], subscriptions))
        hits[message_id] = Hit(
            id=str(message_id),
            title=row["event_type"],
            state=summary(state, counts, store.cold),
            at=row["created_at"],
            biz=systems.get(row["biz_id"], str(row["biz_id"])),
            tone=tone(counts),
            details=" · ".join(details),
            reason=" · ".join(_reasons(parts, subscriptions)),
            duration=_("last change %s") % local(changed_at) if changed_at else "",
        )
    return hits


def subscription_lines(url: str) -> list[Hit]:
    """Lines of subscriptions that deliver to exactly this URL. A part of a URL finds nothing,
    because a URL may hold a secret, which a search could reveal letter by letter."""
    if not url.startswith(("http://", "https://")):
        return []
    rows = BizReceive.objects.filter(receive__url=url).select_related("biz", "receive")
    return [
        Hit(
            id=str(row.pk),
            title=_("Messages for %s") % row.receive,
            state=str(row.get_status_display()),
            at=row.created_at,
            biz=str(row.biz),
            link=f"{reverse('console:find', args=['notify'])}?subscription={row.pk}",
        )
        for row in rows.order_by("-id")[:_MAX_SUBSCRIPTIONS]
    ]


def _groups(store: Store, deliveries: QuerySet[Any]) -> Mapping[int, list[_Group]]:
    """Message id → its deliveries, grouped by status and answer."""
    groups: dict[int, list[_Group]] = defaultdict(list)
    figures = [Count("id"), Max("send_times"), Min("biz_receive_id"), Max("updated_at")]
    if not store.cold:
        figures.append(Min("next_at"))
    columns = deliveries.order_by().values_list("msg_id", "status", "http_status", "error")
    for message_id, *row in columns.annotate(*figures):
        groups[message_id].append(_Group(*row))
    return groups


def _reasons(groups: Sequence[_Group], subscriptions: Mapping[int, BizReceive]) -> list[str]:
    """The last answers of deliveries that have not arrived, and the time of the next attempt."""
    failures = [group for group in groups if group.status != Status.DELIVERED and group.attempts]
    failures.sort(key=lambda group: (group.status not in ReceiveMsg.FAILED, -group.count))
    is_alone = len(groups) == 1 and groups[0].count == 1
    parts = []
    for group in failures[:_MAX_ANSWERS]:
        text = answer(group) or str(Status(group.status).label)
        tries = ngettext("%d attempt", "%d attempts", group.attempts) % group.attempts
        name = "" if is_alone else f"{_name(group, subscriptions)}: "
        parts.append(f"{name}{text}, {tries}")
    if len(failures) > _MAX_ANSWERS:
        parts.append("…")
    waits = [g.next_at for g in failures if g.status == Status.PENDING and g.next_at]
    if waits:
        parts.append(_("next attempt %s") % local(min(waits)))
    return parts


def _name(group: _Group, subscriptions: Mapping[int, BizReceive]) -> str:
    """The consumer of a single delivery, else the number of deliveries."""
    if group.count > 1:
        return ngettext("%d delivery", "%d deliveries", group.count) % group.count
    return consumer_name(subscriptions.get(group.subscription), group.subscription)
