"""Fan-out on read: the newest posts of each author, for the merged part of timelines."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import msgspec
from django.db import connection

from msgplatform.core.data import chunks, engines
from notify.feed.models import FeedUser, Friend
from notify.feed.models.users import NOTHING_WRITTEN, POST_RELATIONS, RELATIONS_OF_TOPIC

Source = tuple[str, str]  # an author and a topic
Parameters = list[str | int]
NEWEST = NOTHING_WRITTEN  # no post has an id as large
_MAX_BRANCHES, _MAX_IDS = 100, 30_000  # in one statement, and in its answer
# Rows of all sources that one further look reads when the first posts do not fill a page.
_MAX_ROWS = 5_000
# Relation → the topics of the posts that it brings.
_TOPICS = {
    relation: [topic for topic, relations in RELATIONS_OF_TOPIC.items() if relation in relations]
    for relation in POST_RELATIONS
}


class TimelineQuery(msgspec.Struct, frozen=True):
    """Posts with `after` < id < `before` in the timeline of `uid`. `app_id`, `src_type`: only posts
    of this application and kind, '': all. `has_own`: the user's own posts too."""

    biz: int
    uid: str
    after: int = 0
    before: int = NEWEST
    app_id: str = ""
    src_type: str = ""
    has_own: bool = True

    @property
    def is_empty(self) -> bool:
        """True if no id lies between `after` and `before`."""
        return self.after + 1 >= self.before

    def conditions(self) -> tuple[str, Parameters]:
        """SQL conditions on the post `f`, without conditions on author and id."""
        conditions, parameters = "f.delete_date IS NULL", Parameters()
        for column, value in (("app_id", self.app_id), ("src_type", self.src_type)):
            if value:
                conditions += f" AND f.{column} = %s"
                parameters.append(value)
        return conditions, parameters


def sources(biz: int, uid: str, deliveries: Collection[int] = ()) -> list[Source]:
    """The authors and topics that this reader receives, by relations with these deliveries (by
    default all)."""
    rows = Friend.objects.filter(biz_id=biz, fri_uid=uid, relation__in=POST_RELATIONS)
    if deliveries:
        rows = rows.filter(delivery__in=deliveries)
    return of_relations(rows.values_list("uid", "relation"))


def of_relations(relations: Iterable[tuple[str, str]]) -> list[Source]:
    """The sources that pairs (author, relation) bring."""
    return sorted({(uid, topic) for uid, relation in relations for topic in _TOPICS[relation]})


def own_sources(uid: str) -> list[Source]:
    """The sources of a user's own posts."""
    return [(uid, topic) for topic in RELATIONS_OF_TOPIC]


def authors_to_write(biz: int, uid: str, limit: int) -> list[str]:
    """Authors who are merged for this reader only until a backfill has written their posts. For
    other readers these authors are pushed."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT r.uid FROM friend r {engines.of().ordered_join} feed_user a "  # noqa: S608
            "ON a.biz_id = r.biz_id AND a.uid = r.uid WHERE r.biz_id = %s AND r.fri_uid = %s "
            f"AND r.delivery = {int(Friend.Delivery.BOTH)} AND r.relation IN (%s, %s) "
            f"AND a.merging = {int(FeedUser.Merging.PUSHED)} LIMIT {int(limit)}",
            [biz, uid, *POST_RELATIONS],
        )
        return [row[0] for row in cursor.fetchall()]


class NewestPosts(msgspec.Struct, frozen=True):
    """Ids of posts, newest first; all posts from the id `complete_to` on were looked at, 0: all."""

    post_ids: list[int]
    complete_to: int = 0


def newest(
    query: TimelineQuery, sources: Sequence[Source], limit: int, max_posts: float = math.inf
) -> NewestPosts:
    """The newest posts of these sources, at most `limit`. Ends with fewer after looking at
    `max_posts`: deleted posts stay in the table, and a filter may match few posts."""
    post_ids: list[int] = []
    count, depth = 0, limit
    while sources and not query.is_empty:
        part, part_count = _look(query, sources, limit - len(post_ids), depth)
        post_ids += part.post_ids
        count += part_count
        if len(post_ids) == limit or not part.complete_to:
            break
        if count >= max_posts:
            return NewestPosts(post_ids, part.complete_to)
        query = msgspec.structs.replace(query, before=part.complete_to)
        # After a deleted post few further posts are enough; a filter with few matches needs many.
        depth = max(depth, min(8 * depth, _MAX_ROWS // len(sources)))
    return NewestPosts(post_ids)


def _look(
    query: TimelineQuery, sources: Sequence[Source], limit: int, depth: int
) -> tuple[NewestPosts, int]:
    """The newest `limit` posts among the newest `depth` posts of each source, and the number of
    posts looked at."""
    conditions, filters = query.conditions()
    engine = engines.of()
    # A branch is an index dive that ends after `depth` posts, whether they match or not.
    branch = engine.branch(
        f"SELECT f.id, %s, {conditions} FROM feed f {engine.force_index('feed_of_author')} "  # noqa: S608
        "WHERE f.biz_id = %s AND f.uid = %s AND f.topic = %s AND f.id > %s AND f.id < %s "
        "ORDER BY f.id DESC LIMIT %s"
    )
    post_ids: list[int] = []
    after = complete_to = count = 0
    # Long branches are read a few at a time, because the first branches bound the later ones.
    for chunk in chunks(sources, min(_MAX_BRANCHES, max(10, _MAX_IDS // depth))):
        after = max(query.after, complete_to, post_ids[-1] if len(post_ids) == limit else 0)
        if after + 1 >= query.before:
            break
        parameters: Parameters = []
        for number, (author, topic) in enumerate(chunk):
            parameters += [number, *filters, query.biz, author, topic, after, query.before, depth]
        with connection.cursor() as cursor:
            cursor.execute(" UNION ALL ".join([branch] * len(chunk)), parameters)
            rows = cursor.fetchall()
        count += len(rows)
        counts = Counter(number for _, number, _ in rows)
        # A full branch may have more posts below its last, newer than posts of other branches.
        ends = {number: id for id, number, _ in sorted(rows, reverse=True)}
        full_ends = [id for number, id in ends.items() if counts[number] == depth]
        complete_to = max([complete_to, *full_ends])
        fitting_ids = {id for id, _, fits in rows if fits and id >= complete_to}
        older_ids = [id for id in post_ids if id >= complete_to]
        post_ids = sorted({*older_ids, *fitting_ids}, reverse=True)[:limit]
    return NewestPosts(post_ids, complete_to), count
