"""Feed's data of a person: posts, relations, timelines, and events about the person.

Posts are deleted and relations ended first, as if the user did it. So the posts leave the timelines
of others, and the counts of others stay right. When the events of these changes are handled, the
remaining rows are erased.

A user id that is a phone number or an e-mail address of the person is found in each spelling; a
number of few digits is some other user's id. Every key of these tables begins with the business
system. So a slice is for one system: it reads a page of the system's users, and their rows range by
range.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Model, QuerySet
from django.utils.translation import gettext_lazy as _

from msgplatform.core.data import chunks, sql, transactions
from msgplatform.core.person.identity import Person
from msgplatform.core.person.stores import SLICE, PersonStore, Row, Slice, text_store
from msgplatform.core.personal import MARK
from msgplatform.models import Biz
from notify.feed.intake import posts, relations
from notify.feed.intake.relations import Action, Change
from notify.feed.models import EventQueue, Feed, FeedBroadcast, FeedIdempotency, FeedUser, Friend
from notify.feed.models.posts import Topic
from notify.feed.monitor import failures

PAGE = 500  # rows of one slice, entries of one statement
_MAX_OPEN = 100_000  # open events; this many are read in a second
_STATUS, _OPEN = EventQueue.Status, EventQueue.OPEN
# The rows of a user (system, uid) as ranges of a key: all columns of the key but one have a value,
# and the rows are read in the order of the other column.
Ranges = Iterable[tuple[QuerySet[Any], str]]


# -- the users of a person, and their rows -------------------------------------------------------
def is_user(person: Person, biz: int, uid: str) -> bool:
    """True for a user of the person, and for a user id that is the person's number or address."""
    return (biz, uid) in person.users or person.is_identifier(uid)


def user_rows(
    person: Person, cursor: str, ranges: Callable[[int, str], Ranges], columns: Sequence[str]
) -> tuple[list[Mapping[str, Any]], str]:
    """The rows of the person's users in the next slice, and the next cursor, '' at the end.

    The cursor is the key of the last row, so that rows may be deleted between two slices.
    """
    position = json.loads(cursor) if cursor else None
    if not isinstance(position, list):  # a cursor of an earlier version was a count of rows
        position = [_next_system(person, -1), "", "", 0, None]
    # System, last user of the page before, [user, number of the range], last value.
    biz, page_after, *last_range, last_value = position
    if biz is None:
        return [], ""
    uids, page_end = _uids(person, biz, page_after)
    page: list[Mapping[str, Any]] = []
    for uid in uids:
        for number, (rows, column) in enumerate(ranges(biz, uid)):
            if [uid, number] < last_range:
                continue
            if [uid, number] == last_range and last_value is not None:
                rows = rows.filter(**{f"{column}__gt": last_value})
            page += rows.order_by(column).values(*columns)[: PAGE - len(page)]
            if len(page) == PAGE:
                return page, json.dumps([biz, page_after, uid, number, page[-1][column]])
    next_biz = biz if page_end else _next_system(person, biz)
    return page, json.dumps([next_biz, page_end, "", 0, None]) if next_biz is not None else ""


def _uids(person: Person, biz: int, page_after: str) -> tuple[list[str], str]:
    """The person's users in the next page of a system's users, sorted; the last user of the page,
    '' at the end."""
    # The first page includes users without a row, who have only posted.
    uids = {uid for system, uid in person.users if system == biz} if not page_after else set()
    if not (person.phones or person.emails):
        return sorted(uids), ""
    if not page_after:
        uids |= {*filter(person.is_identifier, person.phone_spellings), *person.emails}
    users = FeedUser.objects.filter(biz_id=biz).values_list("uid", flat=True)
    page = list(users.filter(uid__gt=page_after).order_by("uid")[:SLICE])
    page_end = page[-1] if len(page) == SLICE else ""
    if page_end:  # users of later pages are left to these pages
        uids -= set(users.filter(uid__in=uids, uid__gt=page_end))
    uids |= {uid for uid in page if is_user(person, biz, uid)}
    return sorted(uids), page_end


def _next_system(person: Person, biz: int) -> int | None:
    """The first system after this one that may have users of the person."""
    systems = [system for system, _uid in person.users if system > biz]
    if person.phones or person.emails:
        # A deleted system may have users.
        tables: Sequence[tuple[type[Model], str]] = ((Biz, "id"), (FeedUser, "biz_id"))
        for model, column in tables:
            later_rows = model._base_manager.filter(**{f"{column}__gt": biz}).order_by(column)
            systems += later_rows.values_list(column, flat=True)[:1]
    return min(systems, default=None)


# -- posts ---------------------------------------------------------------------------------------
def _find_posts(person: Person, cursor: str) -> Slice:
    columns = ("id", "biz_id", "uid", "topic", "data", "create_date", "delete_date")
    if person.phones or person.emails:
        # Authors without recipients who never read have no row in feed_user.
        authors = Feed.objects.filter(id__gt=int(cursor or 0)).order_by("id")
        page = list(authors.values_list("id", "biz_id", "uid")[:SLICE])
        ids = [id for id, biz, uid in page if is_user(person, biz, uid)]
        cursor = str(page[-1][0]) if len(page) == SLICE else ""
        rows = list(Feed.objects.filter(id__in=ids).order_by("id").values(*columns))
    else:
        rows, cursor = user_rows(person, cursor, _posts_of, columns)
    # Open events need the post's author, to find the entries in the timelines of others.
    busy = _busy_systems(person, rows)
    own_rows = [
        Row(str(row["id"]), row, is_open=row["delete_date"] is None or row["biz_id"] in busy)
        for row in rows
    ]
    return Slice(own_rows, cursor)


def _posts_of(biz: int, uid: str) -> Ranges:
    for topic in Topic:
        yield Feed.objects.filter(biz_id=biz, uid=uid, topic=topic), "id"


def _delete_posts(_person: Person, rows: Sequence[Row]) -> int:
    undeleted_rows = [row for row in rows if row.data["delete_date"] is None]
    return sum(posts.delete(int(row.data["biz_id"]), int(row.key)) for row in undeleted_rows)


def _erase_posts(_person: Person, rows: Sequence[Row]) -> int:
    ids = [int(row.key) for row in rows]
    deleted_posts = Feed.objects.filter(id__in=ids).exclude(delete_date=None)
    return transactions.retrying(
        lambda: deleted_posts.update(uid=MARK, data=MARK, app_id="", src_type="")
    )


def _busy_systems(person: Person, rows: Sequence[Mapping[str, Any]]) -> set[int]:
    """The systems of these rows in which events about the person wait to be handled; all systems
    while too many events wait to be read."""
    systems = {int(row["biz_id"]) for row in rows}
    if not systems:
        return set()
    waiting = EventQueue.objects.filter(topic__in=EventQueue.Topic.values, status__in=_OPEN)
    events = list(waiting.order_by().values("biz_id", "uid", "data")[: _MAX_OPEN + 1])
    if len(events) > _MAX_OPEN:
        return systems
    return systems & {event["biz_id"] for event in events if _is_about(person, event)}


# -- relations and timelines ---------------------------------------------------------------------
def _find_relations(person: Person, cursor: str) -> Slice:
    columns = ("biz_id", "uid", "relation", "fri_uid", "create_date")
    rows, cursor = user_rows(person, cursor, _relations_of, columns)
    own_rows = [
        Row(f"{row['biz_id']}:{row['uid']}:{row['relation']}:{row['fri_uid']}", row) for row in rows
    ]
    return Slice(own_rows, cursor)


def _relations_of(biz: int, uid: str) -> Ranges:
    for relation in Friend.Relation:
        rows = Friend.objects.filter(biz_id=biz, relation=relation)
        yield rows.filter(uid=uid), "fri_uid"
        for delivery in Friend.Delivery:
            yield rows.filter(fri_uid=uid, delivery=delivery), "uid"


_ENDS = {
    Friend.Relation.FRIEND: Action.UNFRIEND,
    Friend.Relation.FOLLOW: Action.UNFOLLOW,
    Friend.Relation.BLOCK: Action.UNBLOCK,
}


def _erase_relations(_person: Person, rows: Sequence[Row]) -> int:
    by_system: dict[int, list[Change]] = {}
    for row in rows:
        biz = int(row.data["biz_id"])
        # `fri_uid` follows, or has blocked, `uid`.
        change = Change(biz, _ENDS[row.data["relation"]], row.data["fri_uid"], row.data["uid"])
        by_system.setdefault(biz, []).append(change)
    verdicts = [v for changes in by_system.values() for v in relations.change_many(changes)]
    return sum(verdict.outcome in ("created", "duplicate") for verdict in verdicts)


def _find_timelines(person: Person, cursor: str) -> Slice:
    """Entries of the person's own timeline."""
    columns = ("biz_id", "fri_uid", "feed_id", "create_date")
    rows, cursor = user_rows(person, cursor, _entries_of, columns)
    own_rows = [Row(f"{row['biz_id']}:{row['fri_uid']}:{row['feed_id']}", row) for row in rows]
    return Slice(own_rows, cursor)


def _entries_of(biz: int, uid: str) -> Ranges:
    yield FeedBroadcast.objects.filter(biz_id=biz, fri_uid=uid), "feed_id"


def _erase_timelines(_person: Person, rows: Sequence[Row]) -> int:
    by_reader: dict[tuple[int, str], list[int]] = {}
    for row in rows:
        reader = (int(row.data["biz_id"]), str(row.data["fri_uid"]))
        by_reader.setdefault(reader, []).append(int(row.data["feed_id"]))
    count = 0
    for (biz, uid), feed_ids in by_reader.items():
        for chunk in chunks(feed_ids, PAGE):
            entries = FeedBroadcast.objects.filter(biz_id=biz, fri_uid=uid, feed_id__in=chunk)
            count += transactions.retrying(entries.delete)[0]
    return count


# -- events and users ----------------------------------------------------------------------------
def _is_about(person: Person, event: Mapping[str, Any]) -> bool:
    """True if the event is of a user of the person, or names the person as the reader."""
    if is_user(person, event["biz_id"], event["uid"]):
        return True
    reader = json.loads(event["data"]).get("reader", "") if event["data"] else ""
    return is_user(person, event["biz_id"], reader) or person.is_in(reader)


def _find_events(person: Person, cursor: str) -> Slice:
    rows = EventQueue.objects.filter(qid__gt=int(cursor or 0)).order_by("qid")
    columns = ("qid", "biz_id", "topic", "kind", "status", "data", "uid", "create_date")
    page = list(rows.values(*columns)[:SLICE])
    own_rows = [
        Row(str(row["qid"]), row, row["status"] in _OPEN) for row in page if _is_about(person, row)
    ]
    return Slice(own_rows, str(page[-1]["qid"]) if len(page) == SLICE else "")


def _erase_events(_person: Person, rows: Sequence[Row]) -> int:
    """Erase events. Events that were set aside end, because nobody can replay them afterwards."""
    qids = [int(row.key) for row in rows]

    @transaction.atomic
    def erase_rows() -> int:
        locked_events = EventQueue.objects.select_for_update().filter(qid__in=qids).order_by("qid")
        events = [event for event in locked_events if event.status not in _OPEN]
        set_aside = [event for event in events if event.status == _STATUS.SET_ASIDE]
        failures.take_back(set_aside)
        ended_events = EventQueue.objects.filter(qid__in=[event.qid for event in set_aside])
        ended_events.update(status=_STATUS.HANDLED, handle_date=sql.now())
        erased_events = EventQueue.objects.filter(qid__in=[event.qid for event in events])
        return erased_events.update(uid=MARK, data="", position="", reason="")

    return transactions.retrying(erase_rows)


def _find_users(person: Person, cursor: str) -> Slice:
    columns = ("biz_id", "uid", "friends", "followers", "authors", "visit_date")
    rows, cursor = user_rows(person, cursor, _user_of, columns)
    busy = _busy_systems(person, rows)  # events lock the user's row
    own_rows = [Row(f"{row['biz_id']}:{row['uid']}", row, row["biz_id"] in busy) for row in rows]
    return Slice(own_rows, cursor)


def _user_of(biz: int, uid: str) -> Ranges:
    yield FeedUser.objects.filter(biz_id=biz, uid=uid), "uid"


def _erase_users(_person: Person, rows: Sequence[Row]) -> int:
    return sum(
        transactions.retrying(partial(_erase_user, int(row.data["biz_id"]), str(row.data["uid"])))
        for row in rows
    )


@transaction.atomic
def _erase_user(biz: int, uid: str) -> int:
    """Delete a user without relations. A relation made at the same time waits for the lock, or is
    found here."""
    user = FeedUser.objects.filter(biz_id=biz, uid=uid)
    if not user.select_for_update():
        return 0
    rows = Friend.objects.filter(biz_id=biz)
    # Two queries, because no index serves an OR of both columns.
    if rows.filter(uid=uid).exists() or rows.filter(fri_uid=uid).exists():
        return 0
    return user.delete()[0]


def stores() -> Sequence[PersonStore]:
    """Posts are deleted before relations end: relations lead to the entries of the posts."""
    return (
        PersonStore("feed.posts", _("posts"), _find_posts, _erase_posts, prepare=_delete_posts),
        PersonStore("feed.relations", _("relations"), _find_relations, _erase_relations),
        PersonStore("feed.events", _("events"), _find_events, _erase_events),
        PersonStore("feed.timelines", _("entries of timelines"), _find_timelines, _erase_timelines),
        PersonStore("feed.users", _("users"), _find_users, _erase_users),
        text_store("feed.texts", _("posts of others"), Feed, ("data",)),
        # The data of events have only ids of users and posts: events that name the person are the
        # person's.
        text_store("feed.event_texts", _("events about others"), EventQueue, ("reason",)),
        text_store("feed.keys", _("idempotency keys"), FeedIdempotency, ("key",),
                   unique_column="key"),
    )  # fmt: skip
