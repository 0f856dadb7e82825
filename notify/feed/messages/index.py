"""How posts and events are found: fields, indexes, conditions, lines.

A search goes over events when it asks for work that is not handled yet, else over posts. Open
events are few and in an index; the cleaner deletes handled events, so "handled" means that a post
has no open event. Upkeep has events and no posts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from msgplatform.api import filter_fields
from msgplatform.core.data import sql
from msgplatform.core.data.chunks import chunks
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows import Fields, FilterField, MessageStore
from msgplatform.core.flows.messages import BY_ID, Check, Source, Values, merged
from msgplatform.messages.engine import exact_id
from msgplatform.models import Biz
from notify.feed.messages.lines import lines, timelines
from notify.feed.messages.timeline import page
from notify.feed.models import EventQueue, Feed
from notify.feed.models.posts import Topic

DELETED, HANDLED = "deleted", "handled"
_STATUS = EventQueue.Status
OPEN = {
    "waiting": _STATUS.WAITING, "in_slices": _STATUS.IN_SLICES, "set_aside": _STATUS.SET_ASIDE,
}  # fmt: skip
STATES = (*OPEN, HANDLED, DELETED)
_UPKEEP = EventQueue.Topic.UPKEEP
_SYSTEMS = 100  # asked in one statement


def _read_topic(text: str, field: str) -> str:
    if text not in EventQueue.Topic.values:
        raise InvalidInput(_("use one of %s") % ", ".join(EventQueue.Topic.values), field)
    return text


def _read_state(text: str, field: str) -> str:
    if text not in STATES:
        raise InvalidInput(_("use one of %s") % ", ".join(STATES), field)
    return text


TOPIC = filter_fields.choice(gettext_lazy("Topic"), EventQueue.Topic, read=_read_topic)
FIELDS: Fields = {
    "id": filter_fields.message_id(gettext_lazy("A post's or an event's id")),
    "user": FilterField(
        gettext_lazy("User"), gettext_lazy("The business system's own id of an author, exact")
    ),
    "biz": filter_fields.BIZ,
    "topic": TOPIC,
    "kind": FilterField(gettext_lazy("Kind"), gettext_lazy("Of the post, exact, such as update")),
    "state": filter_fields.choice(
        gettext_lazy("State"),
        [
            *((name, status.label) for name, status in OPEN.items()),
            (HANDLED, _STATUS.HANDLED.label),
            (DELETED, gettext_lazy("deleted")),
        ],
        read=_read_state,
    ),
    "since": filter_fields.since(gettext_lazy("Posted at this time or later")),
    "until": filter_fields.until(gettext_lazy("Posted before this time")),
}


def _check(values: Values) -> None:
    if values.get("topic") == _UPKEEP and values.get("state") == DELETED:
        raise InvalidInput(_("upkeep has no posts that could be deleted"), "state")


# -- posts ---------------------------------------------------------------------------------------
def _of_author(rows: QuerySet[Any], values: Values) -> list[QuerySet[Any]]:
    """The index goes on from the system and the user to the topic, then the id."""
    topics = [values["topic"]] if "topic" in values else Topic.values
    return [
        sql.of_one(rows.filter(uid=values["user"], topic=topic), "biz_id", biz)
        .order_by("-biz_id", "-id")
        for biz in _systems(values)
        for topic in topics
    ]  # fmt: skip


def _systems(values: Values) -> list[int]:
    """Systems in which this user has posted."""
    if "biz" in values:
        return [values["biz"]]
    every = list(Biz.objects.order_by("id").values_list("id", flat=True))
    ids: set[int] = set()
    for some in chunks(every, _SYSTEMS):
        rows = Feed.objects.filter(biz_id__in=some, uid=values["user"])
        ids.update(rows.order_by().values_list("biz_id", flat=True).distinct())
    return sorted(ids)


def _without_open_event(values: Values, ids: Sequence[int]) -> set[int]:
    if values["state"] != HANDLED:
        return set(ids)
    open_events = EventQueue.objects.filter(qid__in=ids, status__in=OPEN.values())
    return set(ids) - set(open_events.order_by().values_list("qid", flat=True))


def _with_text(values: Values, ids: Sequence[int]) -> set[int]:
    rows = Feed.objects.filter(id__in=ids).order_by().values_list("id", "data")
    return {pk for pk, text in rows if values["text"] in text}


_POSTS = Source(
    rows=Feed.objects.all,
    lines=lines,
    indexes=[BY_ID, merged(("user",), _of_author, decides=("user", "biz", "topic"))],
    conditions={
        "id": "id",
        "biz": "biz_id",
        "user": "uid",
        "topic": "topic",
        "kind": "src_type",
        "state": lambda state: Q(delete_date__isnull=state != DELETED),
    },
    checks=[Check(("state",), _without_open_event), Check(("text",), _with_text)],
)


# -- events --------------------------------------------------------------------------------------
def _by_topic_and_status(rows: QuerySet[Any], values: Values) -> list[QuerySet[Any]]:
    state = values.get("state")
    statuses = list(_STATUS) if state is None else [OPEN.get(state, _STATUS.HANDLED)]
    topics = [values["topic"]] if "topic" in values else EventQueue.Topic.values
    return [
        sql.of_one(rows.filter(status=status), "topic", topic).order_by("-topic", "-qid")
        for topic in topics
        for status in statuses
    ]


def _with_post_of_kind(values: Values, ids: Sequence[int]) -> set[int]:
    rows = Feed.objects.filter(id__in=ids, src_type=values["kind"])
    return set(rows.order_by().values_list("id", flat=True))


_EVENTS = Source(
    rows=EventQueue.objects.all,
    id="qid",
    lines=lines,
    indexes=[BY_ID, merged((), _by_topic_and_status, decides=("topic", "state"))],
    conditions={
        "id": "qid",
        "biz": "biz_id",
        "user": "uid",
        "topic": "topic",
        "state": lambda state: Q(status=OPEN.get(state, _STATUS.HANDLED)),
    },
    checks=[Check(("kind",), _with_post_of_kind)],
)


def _sources(values: Values) -> list[Source]:
    if values.get("state") in OPEN or values.get("topic") == _UPKEEP:
        return [_EVENTS]
    # An id alone may be an event's of upkeep.
    return [_POSTS, _EVENTS] if values.keys() == {"id"} else [_POSTS]


def _readings(query: str, _personal: bool) -> Iterator[Values]:
    """A post's or an event's id, else the id of an author."""
    yield from exact_id(query)
    yield {"user": query}


MESSAGES = MessageStore(
    fields=FIELDS,
    sources=_sources,
    readings=_readings,
    other_lines=timelines,
    check=_check,
    page=page,
    searched_text_label=gettext_lazy("posts"),
)
