"""What Feed holds of a person: posts, relations, timelines, and events about them.

Posts are deleted and relations ended first, as the user would do it: that takes the posts out of
the timelines of others, and keeps their counts right. When the events of that are handled, what is
left names the person no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_
from typing import Any

from django.db.models import Q, QuerySet
from django.utils.translation import gettext_lazy as _

from msgplatform.core.data import transactions
from msgplatform.core.data.chunks import chunks
from msgplatform.core.person.identity import MARK, Person
from msgplatform.core.person.stores import PersonStore, Row, Slice, text_store
from notify.feed.intake import posts, relations
from notify.feed.intake.relations import Action, Change
from notify.feed.models import EventQueue, Feed, FeedBroadcast, FeedIdempotency, FeedUser, Friend

_PAGE = 500
_OPEN = (EventQueue.Status.WAITING, EventQueue.Status.IN_SLICES)


_NOBODY = Q(biz_id=-1)


def _of_users(person: Person, column: str = "uid") -> Q:
    """The condition for rows of the person's users; also of those whose id is a phone number or an
    e-mail address of the person."""
    pairs = [Q(**{"biz_id": biz, column: uid}) for biz, uid in sorted(person.users)]
    telling_ids = [*person.phone_spellings, *sorted(person.emails)]
    return reduce(or_, pairs, Q(**{f"{column}__in": telling_ids}) if telling_ids else _NOBODY)


# -- posts ---------------------------------------------------------------------------------------
def _find_posts(person: Person, cursor: str) -> Slice:
    rows = Feed.objects.filter(_of_users(person), id__gt=int(cursor or 0)).order_by("id")
    page = list(rows.values("id", "biz_id", "uid", "topic", "data", "create_date", "delete_date")
                [:_PAGE])  # fmt: skip
    # The events find the entries in the timelines of others by the author.
    busy = _busy_systems(person) if page else set()
    own_rows = [
        Row(str(row["id"]), row, row["delete_date"] is None or row["biz_id"] in busy)
        for row in page
    ]
    return Slice(own_rows, str(page[-1]["id"]) if len(page) == _PAGE else "")


def _delete_posts(_person: Person, rows: Sequence[Row]) -> int:
    undeleted_rows = [row for row in rows if row.data["delete_date"] is None]
    return sum(posts.delete(int(row.data["biz_id"]), int(row.key)) for row in undeleted_rows)


def _erase_posts(_person: Person, rows: Sequence[Row]) -> int:
    ids = [int(row.key) for row in rows]
    erased = Feed.objects.filter(id__in=ids).exclude(delete_date=None)
    return transactions.retrying(lambda: erased.update(uid=MARK, data=MARK, app_id="", src_type=""))


def _busy_systems(person: Person) -> set[int]:
    """Systems in which events about the person wait to be handled."""
    events = EventQueue.objects.filter(_names_user(person), status__in=_OPEN)
    return set(events.order_by().values_list("biz_id", flat=True))


# -- relations and timelines ---------------------------------------------------------------------
def _find_relations(person: Person, cursor: str) -> Slice:
    rows: QuerySet[Any] = Friend.objects.filter(
        _of_users(person) | _of_users(person, "fri_uid")
    ).order_by("biz_id", "uid", "relation", "fri_uid")
    # Those that are erased are gone, so that the first page is always the next one.
    page = list(rows.values("biz_id", "uid", "relation", "fri_uid", "create_date")
                [int(cursor or 0):][:_PAGE])  # fmt: skip
    own_rows = [
        Row(f"{row['biz_id']}:{row['uid']}:{row['relation']}:{row['fri_uid']}", row) for row in page
    ]
    return Slice(own_rows, str(int(cursor or 0) + _PAGE) if len(page) == _PAGE else "")


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
    rows: QuerySet[Any] = FeedBroadcast.objects.filter(_of_users(person, "fri_uid"))
    rows = rows.order_by("biz_id", "fri_uid", "feed_id")
    page = list(rows.values("biz_id", "fri_uid", "feed_id", "create_date")
                [int(cursor or 0):][:_PAGE])  # fmt: skip
    own_rows = [Row(f"{row['biz_id']}:{row['fri_uid']}:{row['feed_id']}", row) for row in page]
    return Slice(own_rows, str(int(cursor or 0) + _PAGE) if len(page) == _PAGE else "")


def _erase_timelines(_person: Person, rows: Sequence[Row]) -> int:
    by_reader: dict[tuple[int, str], list[int]] = {}
    for row in rows:
        reader = (int(row.data["biz_id"]), str(row.data["fri_uid"]))
        by_reader.setdefault(reader, []).append(int(row.data["feed_id"]))
    count = 0
    for (biz, uid), feed_ids in by_reader.items():
        for some in chunks(feed_ids, _PAGE):
            entries = FeedBroadcast.objects.filter(biz_id=biz, fri_uid=uid, feed_id__in=some)
            count += transactions.retrying(entries.delete)[0]
    return count


# -- events and users ----------------------------------------------------------------------------
def _names_user(person: Person) -> Q:
    """Events of the person's, and events of others that name them as the reader."""
    pairs = sorted(person.users)
    as_reader = [Q(biz_id=biz, data__contains=f'"{uid}"') for biz, uid in pairs]
    return reduce(or_, as_reader, _of_users(person))


def _find_events(person: Person, cursor: str) -> Slice:
    rows = EventQueue.objects.filter(_names_user(person), qid__gt=int(cursor or 0)).order_by("qid")
    columns = ("qid", "biz_id", "topic", "kind", "status", "data", "uid", "create_date")
    page = list(rows.values(*columns)[:_PAGE])
    own_rows = [Row(str(row["qid"]), row, row["status"] in _OPEN) for row in page]
    return Slice(own_rows, str(page[-1]["qid"]) if len(page) == _PAGE else "")


def _erase_events(_person: Person, rows: Sequence[Row]) -> int:
    events = EventQueue.objects.filter(qid__in=[int(row.key) for row in rows])
    ended = events.exclude(status__in=_OPEN)
    return transactions.retrying(lambda: ended.update(uid=MARK, data="", position="", reason=""))


def _find_users(person: Person, _cursor: str) -> Slice:
    rows = FeedUser.objects.filter(_of_users(person)).order_by("biz_id", "uid")
    columns = ("biz_id", "uid", "friends", "followers", "authors", "visit_date")
    busy = _busy_systems(person)  # events lock the user's row
    return Slice([
        Row(f"{row['biz_id']}:{row['uid']}", row, row["biz_id"] in busy)
        for row in rows.values(*columns)
    ])  # fmt: skip


def _erase_users(_person: Person, rows: Sequence[Row]) -> int:
    count = 0
    for row in rows:
        biz, uid = int(row.data["biz_id"]), str(row.data["uid"])
        users = FeedUser.objects.filter(biz_id=biz, uid=uid)
        relations_left = Friend.objects.filter(Q(uid=uid) | Q(fri_uid=uid), biz_id=biz)
        if not relations_left.exists():
            count += transactions.retrying(users.delete)[0]
    return count


def _texts() -> Iterator[PersonStore]:
    yield text_store("feed.texts", _("posts of others"), Feed, ("data",))
    columns = ("data", "reason")
    yield text_store("feed.event_texts", _("events about others"), EventQueue, columns)
    yield text_store("feed.keys", _("idempotency keys"), FeedIdempotency, ("key",),
                     unique_column="key")  # fmt: skip


def stores() -> Sequence[PersonStore]:
    """Posts are deleted before relations end, by which their entries are found."""
    return (
        PersonStore("feed.posts", _("posts"), _find_posts, _erase_posts, prepare=_delete_posts),
        PersonStore("feed.relations", _("relations"), _find_relations, _erase_relations),
        PersonStore("feed.events", _("events"), _find_events, _erase_events),
        PersonStore("feed.timelines", _("entries of timelines"), _find_timelines, _erase_timelines),
        PersonStore("feed.users", _("users"), _find_users, _erase_users),
        *_texts(),
    )
