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
_BRANCHES, _IDS = 100, 30_000  # the most in one statement, and that it finds
_FRIEND, _FOLLOW = Friend.Relation.FRIEND, Friend.Relation.FOLLOW
_TOPICS = {str(_FRIEND): (Topic.FRIEND, Topic.VIP), str(_FOLLOW): (Topic.VIP,)}


def sources(biz: int, uid: str, deliveries: Collection[int] = ()) -> list[Source]:
    """Whose posts of which topics this reader receives, by relations with these deliveries (by
    default all)."""
    rows = Friend.objects.filter(biz_id=biz, fri_uid=uid, relation__in=(_FRIEND, _FOLLOW))
    if deliveries:
        rows = rows.filter(delivery__in=deliveries)
    return of_relations(rows.values_list("uid", "relation"))


def of_relations(relations: Iterable[tuple[str, str]]) -> list[Source]:
    """The sources that pairs (author, relation) bring."""
    pairs = {(uid, str(topic)) for uid, relation in relations for topic in _TOPICS[relation]}
    return sorted(pairs)


def own(uid: str) -> list[Source]:
    return [(uid, str(topic)) for topic in Topic]


def to_be_written(biz: int, uid: str, limit: int) -> list[str]:
    """Authors who are merged for this reader only until a backfill has written their posts: by now
    they are neither merged for everybody nor becoming so."""
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
    conditions, filters = wanted.conditions()
    force, branch = "INDEXED BY feed_of_author", "SELECT * FROM ({})"
    if connection.vendor == "mysql":
        force, branch = "FORCE INDEX (feed_of_author)", "({})"
    # A branch of a UNION for each source: a dive into the index that ends after `limit` posts.
    one = branch.format(
        f"SELECT f.id FROM feed f {force} WHERE f.biz_id = %s AND f.uid = %s "  # noqa: S608
        f"AND f.topic = %s AND f.id > %s AND f.id < %s AND {conditions} "
        "ORDER BY f.id DESC LIMIT %s"
    )
    found: list[int] = []
    # Long branches are asked a few at a time, because what the first ones find bounds the others.
    branches = min(_BRANCHES, max(10, _IDS // limit))
    for some in chunks(sources, branches):
        if len(found) == limit:  # what is older than these is not among the newest
            wanted = replace(wanted, after=max(wanted.after, found[-1]))
        if wanted.nothing:
            break
        parameters: Parameters = []
        for author, topic in some:
            parameters += [wanted.biz, author, topic, wanted.after, wanted.before, *filters, limit]
        with connection.cursor() as cursor:
            cursor.execute(" UNION ALL ".join([one] * len(some)), parameters)
            found = sorted({*found, *(row[0] for row in cursor.fetchall())}, reverse=True)[:limit]
    return found
