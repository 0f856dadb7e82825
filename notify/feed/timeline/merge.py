"""The part of a timeline that is not written: the newest posts of each author, merged at read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from django.db import connection

from msgplatform.core.data import sql
from msgplatform.core.data.chunks import chunks
from notify.feed.models import FeedUser, Friend
from notify.feed.models.posts import Topic
from notify.feed.timeline.wanted import Parameters, Wanted

Source = tuple[str, str]  # an author, and a topic of theirs
_BRANCHES, _IDS = 100, 30_000  # of one statement
_FRIEND, _FOLLOW = Friend.Relation.FRIEND, Friend.Relation.FOLLOW
_TOPICS = {str(_FRIEND): (Topic.FRIEND, Topic.VIP), str(_FOLLOW): (Topic.VIP,)}


def sources(biz: int, uid: str, deliveries: Collection[int] = ()) -> list[Source]:
    """Whose posts of which topics this reader receives, by relations with these deliveries (all
    without)."""
    rows = Friend.objects.filter(biz_id=biz, fri_uid=uid, relation__in=(_FRIEND, _FOLLOW))
    if deliveries:
        rows = rows.filter(delivery__in=deliveries)
    return of_relations(rows.values_list("uid", "relation"))


def of_relations(relations: Iterable[tuple[str, str]]) -> list[Source]:
    """From pairs (author, relation)."""
    pairs = {(uid, str(topic)) for uid, relation in relations for topic in _TOPICS[relation]}
    return sorted(pairs)


def own(uid: str) -> list[Source]:
    return [(uid, str(topic)) for topic in Topic]


def to_be_written(biz: int, uid: str, limit: int) -> list[str]:
    """Authors who are merged for this reader only until a backfill has written their posts: at this
    moment they are not merged for others, nor becoming so."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT r.uid FROM friend r {sql.ordered_join()} feed_user a "  # noqa: S608
            "ON a.biz_id = r.biz_id AND a.uid = r.uid WHERE r.biz_id = %s AND r.fri_uid = %s "
            f"AND r.delivery = {int(Friend.Delivery.BOTH)} AND r.relation IN (%s, %s) "
            f"AND a.merging = {int(FeedUser.Merging.PUSHED)} LIMIT {int(limit)}",
            [biz, uid, str(_FRIEND), str(_FOLLOW)],
        )
        return [row[0] for row in cursor.fetchall()]


def newest(wanted: Wanted, sources: Sequence[Source], limit: int) -> list[int]:
    """The newest posts of these sources, at most `limit`, newest first."""
    found: list[int] = []
    # Few long branches: what the first ones find bounds the others.
    branches = min(_BRANCHES, max(10, _IDS // limit))
    for some in chunks(sources, branches):
        if len(found) == limit:  # what is older than these is not among the newest
            wanted = replace(wanted, after=max(wanted.after, found[-1]))
        if wanted.nothing:
            break
        found = sorted({*found, *_newest_of(wanted, some, limit)}, reverse=True)[:limit]
    return found


def _newest_of(wanted: Wanted, sources: Sequence[Source], limit: int) -> list[int]:
    conditions, filters = wanted.conditions()
    force, branch = "INDEXED BY feed_of_author", "SELECT * FROM ({})"
    if connection.vendor == "mysql":
        force, branch = "FORCE INDEX (feed_of_author)", "({})"
    one = branch.format(
        f"SELECT f.id FROM feed f {force} WHERE f.biz_id = %s AND f.uid = %s "  # noqa: S608
        f"AND f.topic = %s AND f.id > %s AND f.id < %s AND {conditions} "
        "ORDER BY f.id DESC LIMIT %s"
    )
    parameters: Parameters = []
    for author, topic in sources:
        parameters += [wanted.biz, author, topic, wanted.after, wanted.before, *filters, limit]
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join([one] * len(sources)), parameters)
        return [row[0] for row in cursor.fetchall()]
