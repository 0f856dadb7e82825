"""The fields of a message's filter, which search, bulk actions and the API have in common."""

from collections.abc import Iterable, Sequence

from django.db.models import Q
from django.utils.translation import gettext as _, gettext_lazy
from msgspec.structs import replace

from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.messages import MAX_OPTIONS, Fields, FilterField, Option, Systems
from msgplatform.core.flows.text import Text
from msgplatform.doors.api.converters import ID
from msgplatform.messages import filters
from notify.messages.states import ACCEPTED
from notify.models import BizMsg, BizReceive, EventType, ReceiveMsg
from notify.subscriptions import matching


def _read_subscription(text: str, field: str) -> int:
    """The id of the subscription that `text` names, by id or as system/consumer."""
    biz, slash, receive = text.partition("/")
    if not slash:
        return filters.number(text, field)
    rows = BizReceive.objects.filter(biz__name=biz.strip(), receive__name=receive.strip())
    subscription = rows.values_list("id", flat=True).first()
    if subscription is None:
        raise InvalidInput(_("there is no such subscription; use system/consumer or its id"), field)
    return subscription


def _subscriptions(text: str, systems: Systems) -> Sequence[Option]:
    """Subscriptions that match a part of the system's or consumer's name or title, or a text such
    as orders/ware. For an id, as in links, the option shows the subscription's name."""
    rows = BizReceive.objects.select_related("biz", "receive")
    system, slash, consumer = text.partition("/")
    if slash:
        rows = rows.filter(_match_name("biz", system) & _match_name("receive", consumer))
    else:
        condition = _match_name("biz", text) | _match_name("receive", text)
        if text.isdecimal() and text.isascii() and len(text) < 19:
            condition |= Q(id=int(text))
        rows = rows.filter(condition)
    if systems is not None:
        rows = rows.filter(biz_id__in=systems)
    columns = ("biz__name", "receive__name", "biz__title", "receive__title")
    names = rows.order_by("biz__name", "receive__name").values_list(*columns)[:MAX_OPTIONS]
    return [
        Option(f"{biz}/{receive}", f"{biz_title or biz} → {title or receive}")
        for biz, receive, biz_title, title in names
    ]


def _match_name(what: str, text: str) -> Q:
    text = text.strip()
    return Q(**{f"{what}__name__icontains": text}) | Q(**{f"{what}__title__icontains": text})


def _owners(subscription: int) -> list[int]:
    rows = BizReceive.objects.filter(pk=subscription)
    return list(rows.values_list("biz_id", flat=True))


def _event_types(text: str, systems: Systems) -> Sequence[Option]:
    """Event types that begin with `text`, from hot messages: each costs one index dive. With
    `systems` from the catalogue, because no index has the types of one system."""
    if systems is not None:
        rows_of_systems = EventType.objects.filter(Q(biz=None) | Q(biz_id__in=systems))
        entries = rows_of_systems.filter(name__startswith=text).order_by("name")
        return [Option(name) for name in entries.values_list("name", flat=True)[:MAX_OPTIONS]]
    rows = BizMsg.objects.order_by("event_type").values_list("event_type", flat=True)
    names: list[str] = []
    following = rows.filter(event_type__gte=text).first()
    while following is not None and following.startswith(text) and len(names) < MAX_OPTIONS:
        names.append(following)
        following = rows.filter(event_type__gt=following).first()
    return [Option(name) for name in names]


def statuses(which: Iterable[int], help: Text = "", nothing: Text = "") -> FilterField:
    """A field: a choice of these statuses of a delivery."""
    members = [ReceiveMsg.Status(status) for status in which]
    choices = [(status.name.lower(), status.label) for status in members]
    return filters.choice(gettext_lazy("Status"), choices, help, nothing)


SUBSCRIPTION = FilterField(
    gettext_lazy("Subscription"),
    gettext_lazy("Type a part of its system or consumer"),
    "name",
    options=_subscriptions,
    owners=_owners,
    read=_read_subscription,
    parameter_help="Only events with a delivery for this subscription",
    schema=ID,
)
EVENT_TYPE = FilterField(
    gettext_lazy("Event type"),
    gettext_lazy("Exact, such as order.paid"),
    "name",
    options=_event_types,
    parameter_help="Only events of exactly this type",
    schema={"pattern": matching.EVENT_TYPE_PATTERN, "maxLength": 128},
)
FIELDS: Fields = {
    "id": filters.message_id(gettext_lazy("A message's or a delivery's id")),
    "key": FilterField(
        gettext_lazy("Idempotency key"),
        parameter="idempotency_key",
        parameter_help="Only the event with this idempotency key",
    ),
    "biz": filters.BIZ,
    "event_type": EVENT_TYPE,
    "status": replace(
        filters.choice(
            gettext_lazy("Status"),
            ((ACCEPTED, BizMsg.State.ACCEPTED.label), *statuses(ReceiveMsg.Status).choices),
            gettext_lazy("Of any of its deliveries"),
        ),
        parameter_help="Only events with a delivery in this status, for the subscription or the "
        "consumer if one is given; accepted: only events that have no deliveries yet",
    ),
    "subscription": SUBSCRIPTION,
    "channel": FilterField(
        gettext_lazy("Channel"),
        gettext_lazy("Exact"),
        parameter_help="Only events of exactly this channel",
    ),
    "since": filters.SINCE,
    "until": filters.UNTIL,
    "text": FilterField(
        gettext_lazy("Text"),
        gettext_lazy(
            "A part of the payload or of an answer; upper and lower case differ. Needs a system, a "
            "subscription or a time as well"
        ),
        personal=True,
        parameter_help="Only events with this text, upper and lower case as it is, in the payload "
        "or in a consumer's answer",
    ),
}
