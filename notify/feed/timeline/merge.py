"""The part of a timeline that is not written: the newest posts of each author, merged at read."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from django.db import connection

from msgplatform.core.data import sql
from msgplatform.core.data.chunks import chunks
from notify.feed.models import FeedUser, Friend
from notify.feed.models.posts import Topic
from notify.feed.timeline.wanted import Parameters, Wanted

Source = tuple[str, str]  # an author, and a topic of theirs
_BRANCHES, _IDS = 100, 30_000  # the most in one statement, and that it finds
_ROWS = 5_000  # looked at once more, all sources together, when the first ones do not fill a page
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


@dataclass(frozen=True, slots=True)
class Merged:
    """Posts, newest first. What is older than `reached` was not looked at; 0: everything was."""

    posts: list[int]
    reached: int = 0


def newest(wanted: Wanted, sources: Sequence[Source], limit: int, most: float = math.inf) -> Merged:
    """The newest posts of these sources, at most `limit`. After looking at `most` it ends with
    fewer: deleted posts stay in the table, and a filter may fit hardly any."""
    found: list[int] = []
    seen, depth = 0, limit
    while sources and not wanted.nothing:
        part, count = _look(wanted, sources, limit - len(found), depth)
        found += part.posts
        seen += count
        if len(found) == limit or not part.reached:
            break
        if seen >= most:
            return Merged(found, part.reached)
        wanted = replace(wanted, before=part.reached)
        # One deleted post is made up for by few others; what hardly ever fits needs long strides.
        depth = max(depth, min(8 * depth, _ROWS // len(sources)))
    return Merged(found)


def _look(wanted: Wanted, sources: Sequence[Source], limit: int, depth: int) -> tuple[Merged, int]:
    """The first `limit` among the newest `depth` posts of each source, and how many posts were
    looked at."""
    one, filters = _branch(wanted)
    found: list[int] = []
    after = reached = seen = 0
    # Long branches are asked a few at a time, because what the first ones find bounds the others.
    for some in chunks(sources, min(_BRANCHES, max(10, _IDS // depth))):
        after = max(wanted.after, reached, found[-1] if len(found) == limit else 0)
        if after + 1 >= wanted.before:
            break
        parameters: Parameters = []
        for number, (author, topic) in enumerate(some):
            parameters += [number, *filters, wanted.biz, author, topic, after, wanted.before, depth]
        with connection.cursor() as cursor:
            cursor.execute(" UNION ALL ".join([one] * len(some)), parameters)
            rows = cursor.fetchall()
        seen += len(rows)
        counts = Counter(number for _, number, _ in rows)
        # Below the last post of a full branch there may be others, newer than those of the rest.
        ends = {number: id for id, number, _ in sorted(rows, reverse=True)}
        full = [id for number, id in ends.items() if counts[number] == depth]
        reached = max([reached, *full])
        fitting = {id for id, _, fits in rows if fits and id >= reached}
        older = [id for id in found if id >= reached]
        found = sorted({*older, *fitting}, reverse=True)[:limit]
    return Merged(found, reached), seen


def _branch(wanted: Wanted) -> tuple[str, Parameters]:
    """A source's part of the UNION: a dive into the index that ends after some posts, whether they
    are wanted or not. And the parameters of its conditions."""
    conditions, filters = wanted.conditions()
    force, branch = "INDEXED BY feed_of_author", "SELECT * FROM ({})"
    if connection.vendor == "mysql":
        force, branch = "FORCE INDEX (feed_of_author)", "({})"
    return branch.format(
        f"SELECT f.id, %s, {conditions} FROM feed f {force} "  # noqa: S608
        "WHERE f.biz_id = %s AND f.uid = %s AND f.topic = %s AND f.id > %s AND f.id < %s "
        "ORDER BY f.id DESC LIMIT %s"
    ), filters
