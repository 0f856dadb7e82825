"""The fields of Notify's filters, as a form offers them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from msgplatform.api import filter_fields
from msgplatform.core.flows import MAX_OPTIONS, Fields, FilterField, Option, Text
from notify.models import BizMsg, BizReceive, ReceiveMsg


def subscriptions(typed: str) -> Sequence[Option]:
    """By a part of the names or titles of the system or the consumer; also orders/ware. An id, as
    links have it, is offered by its name."""
    rows = BizReceive.objects.select_related("biz", "receive")
    system, slash, consumer = typed.partition("/")
    if slash:
        rows = rows.filter(_named("biz", system) & _named("receive", consumer))
    else:
        wanted = _named("biz", typed) | _named("receive", typed)
        if typed.isdecimal() and typed.isascii() and len(typed) < 19:
            wanted |= Q(id=int(typed))
        rows = rows.filter(wanted)
    columns = ("biz__name", "receive__name", "biz__title", "receive__title")
    found = rows.order_by("biz__name", "receive__name").values_list(*columns)[:MAX_OPTIONS]
    return [
        Option(f"{biz}/{receive}", f"{biz_title or biz} → {title or receive}")
        for biz, receive, biz_title, title in found
    ]


def _named(what: str, typed: str) -> Q:
    typed = typed.strip()
    return Q(**{f"{what}__name__icontains": typed}) | Q(**{f"{what}__title__icontains": typed})


def event_types(typed: str) -> Sequence[Option]:
    """Event types of hot messages that begin so: each is one dive into their index."""
    rows = BizMsg.objects.order_by("event_type").values_list("event_type", flat=True)
    found: list[str] = []
    following = rows.filter(event_type__gte=typed).first()
    while following is not None and following.startswith(typed) and len(found) < MAX_OPTIONS:
        found.append(following)
        following = rows.filter(event_type__gt=following).first()
    return [Option(name) for name in found]


def statuses(which: Iterable[int], help: Text = "", nothing: Text = "") -> FilterField:
    """A choice among these statuses of a delivery."""
    chosen = [ReceiveMsg.Status(status) for status in which]
    choices = [(status.name.lower(), status.label) for status in chosen]
    return filter_fields.choice(_("Status"), choices, help, nothing)


SUBSCRIPTION = FilterField(
    _("Subscription"), _("Type a part of its system or consumer"), "name", options=subscriptions
)
EVENT_TYPE = FilterField(
    _("Event type"), _("Exact, such as order.paid"), "name", options=event_types
)
_STATUS = statuses(ReceiveMsg.Status)
SEARCH: Fields = {
    "id": filter_fields.message_id(_("A message's or a delivery's id")),
    "key": FilterField(_("Idempotency key")),
    "biz": filter_fields.BIZ,
    "event_type": EVENT_TYPE,
    "status": FilterField(
        _("Status"),
        _("Of any of its deliveries"),
        "choice",
        (("accepted", BizMsg.State.ACCEPTED.label), *_STATUS.choices),
    ),
    "subscription": SUBSCRIPTION,
    "channel": FilterField(_("Channel"), _("Exact")),
    "since": filter_fields.SINCE,
    "until": filter_fields.UNTIL,
    "text": FilterField(
        _("Text"),
        _(
            "A part of the payload or of an answer, upper and lower case as it is; together with a "
            "system, a subscription or a time"
        ),
        personal=True,
    ),
}
