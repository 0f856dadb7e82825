"""The declaration of posts and events: fields, indexes, conditions.

A search for work that is not handled reads events, every other search reads posts. Open events are
few and in an index. The cleaner deletes handled events, so "handled" means that a post has no open
event. Upkeep has events and no posts.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.db.models import Q, QuerySet
from django.utils.translation import gettext, gettext_lazy as _, pgettext_lazy

from msgplatform.core.data import chunks, sql
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.messages import (
    BY_ID,
    Check,
    Fields,
    FilterField,
    MessageStore,
    Source,
    Values,
    merged,
)
from msgplatform.messages import filters
from msgplatform.messages.engine import exact_id
from msgplatform.models import Biz
from notify.feed.intake.posts import check_kind, check_uid
from notify.feed.messages.page import page
from notify.feed.messages.states import lines, timelines
from notify.feed.models import EventQueue, Feed
from notify.feed.models.posts import Topic

HANDLED, NOT_DELETED, EDITED, DELETED = "handled", "not_deleted", "edited", "deleted"
_STATUS = EventQueue.Status
_UNHANDLED = {
    "waiting": _STATUS.WAITING, "in_slices": _STATUS.IN_SLICES, "set_aside": _STATUS.SET_ASIDE,
}  # fmt: skip
# States that only posts have. Upkeep has none of these states.
_OF_POSTS: Mapping[str, Q] = {
    NOT_DELETED: Q(delete_date__isnull=True),
    EDITED: Q(delete_date__isnull=True, update_date__isnull=False),
    DELETED: Q(delete_date__isnull=False),
}
# True: only events of posts that are not deleted, as the API lists them.
POSTS_ONLY = "posts_only"
_UPKEEP = EventQueue.Topic.UPKEEP
_SYSTEMS = 100  # systems in one statement


_READ_KIND = filters.checked_by(check_kind)
TOPIC = filters.choice(_("Topic"), EventQueue.Topic)
FIELDS: Fields = {
    "id": filters.message_id(_("A post's or an event's id")),
    "user": FilterField(
        _("User"), _("The business system's own id of an author, exact"),
        read=filters.checked_by(check_uid), parameter="uid",
    ),
    "biz": filters.BIZ,
    "topic": TOPIC,
    "app_id": FilterField(
        _("Application"), _("Of the post, exact, such as mobile"), read=_READ_KIND
    ),
    "kind": FilterField(
        _("Kind"), _("Of the post, exact, such as update"), read=_READ_KIND, parameter="src_type"
    ),
    "state": filters.choice(
        _("State"),
        [*((name, status.label) for name, status in _UNHANDLED.items()),
         (HANDLED, _STATUS.HANDLED.label), (NOT_DELETED, _("not deleted")),
         (EDITED, pgettext_lazy("state", "edited")), (DELETED, _("deleted"))],
    ),
    "since": filters.since(_("Posted at this time or later")),
    "until": filters.until(_("Posted before this time")),
}  # fmt: skip


def _check(values: Values) -> None:
    if values.get("topic") == _UPKEEP and values.get("state") in _OF_POSTS:
        raise InvalidInput(gettext("upkeep has no posts: use another state"), "state")


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
    all_ids = list(Biz.objects.order_by("id").values_list("id", flat=True))
    ids: set[int] = set()
    for system_ids in chunks(all_ids, _SYSTEMS):
        rows = Feed.objects.filter(biz_id__in=system_ids, uid=values["user"])
        ids.update(rows.order_by().values_list("biz_id", flat=True).distinct())
    return sorted(ids)


def _without_open_event(values: Values, ids: Sequence[int]) -> set[int]:
    if values["state"] != HANDLED:
        return set(ids)
    open_events = EventQueue.objects.filter(qid__in=ids, status__in=_UNHANDLED.values())
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
        "app_id": "app_id",
        "kind": "src_type",
        "state": lambda state: _OF_POSTS.get(state, _OF_POSTS[NOT_DELETED]),
    },
    checks=[Check(("state",), _without_open_event), Check(("text",), _with_text)],
)


# -- events --------------------------------------------------------------------------------------
def _by_topic_and_status(rows: QuerySet[Any], values: Values) -> list[QuerySet[Any]]:
    state = values.get("state")
    statuses = list(_STATUS) if state is None else [_UNHANDLED.get(state, _STATUS.HANDLED)]
    topics = [values["topic"]] if "topic" in values else EventQueue.Topic.values
    return [
        sql.of_one(rows.filter(status=status), "topic", topic).order_by("-topic", "-qid")
        for topic in topics
        for status in statuses
    ]


def _with_post(values: Values, ids: Sequence[int]) -> set[int]:
    rows = Feed.objects.filter(id__in=ids).order_by()
    if POSTS_ONLY in values:
        rows = rows.filter(_OF_POSTS[NOT_DELETED])
    columns = {"app_id": "app_id", "src_type": "kind"}
    conditions = {column: values[name] for column, name in columns.items() if name in values}
    return set(rows.filter(**conditions).values_list("id", flat=True))


EVENTS = Source(
    rows=EventQueue.objects.all,
    id="qid",
    lines=lines,
    indexes=[BY_ID, merged((), _by_topic_and_status, decides=("topic", "state"))],
    conditions={
        "id": "qid",
        "biz": "biz_id",
        "user": "uid",
        "topic": "topic",
        "state": lambda state: Q(status=_UNHANDLED.get(state, _STATUS.HANDLED)),
    },
    checks=[Check(("app_id", "kind", POSTS_ONLY), _with_post)],
)


def _sources(values: Values) -> list[Source]:
    if values.get("state") in _UNHANDLED or values.get("topic") == _UPKEEP:
        return [EVENTS]
    # An id alone may be an event's of upkeep.
    return [_POSTS, EVENTS] if values.keys() == {"id"} else [_POSTS]


def _records(biz: int, ids: Sequence[int]) -> dict[int, Feed]:
    rows = Feed.objects.filter(id__in=ids, biz_id=biz).order_by()
    return {post.pk: post for post in sorted(rows, key=lambda post: -post.pk)}


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
    records=_records,
    searched_text_label=_("posts"),
)
