"""Fan-out on write: the database writes an entry for each recipient of a post, or for a slice of
the recipients.

Existing entries are kept, so every statement can be repeated.
"""

from collections.abc import Sequence

import msgspec
from django.db import connection
from django.db.models import QuerySet

from msgplatform.core.data import engines, sql
from notify.feed.dispatcher.queue import Event
from notify.feed.models import Friend
from notify.feed.models.users import RELATIONS_OF_TOPIC

_INSERT = (
    "INSERT INTO feed_broadcast (biz_id, fri_uid, feed_id, create_date, app_id, src_type) "
    "SELECT r.biz_id, r.fri_uid, f.id, f.create_date, f.app_id, f.src_type "
)


class Slice(msgspec.Struct, frozen=True):
    """Recipients with this relation above `after` and up to `until` (None: to the end).

    `position` is the begin of the next slice; None: this is the last slice.
    """

    relation: str
    after: str
    until: str | None
    position: str | None

    def rows(self, event: Event) -> QuerySet[Friend]:
        """The relations of these recipients to the event's author."""
        rows = Friend.objects.filter(
            biz_id=event.biz, uid=event.uid, relation=self.relation, fri_uid__gt=self.after
        )
        return rows if self.until is None else rows.filter(fri_uid__lte=self.until)


def next_slice(event: Event, relations: Sequence[str], size: int) -> Slice:
    """The slice at the event's position: `size` recipients of its author, one relation after the
    other."""
    relation, _, after = event.position.partition(":")
    relation = relation or relations[0]
    rows = Slice(relation, after, None, None).rows(event)
    last = rows.order_by("fri_uid").values_list("fri_uid", flat=True)[size - 1 : size]
    until = next(iter(last), None)
    if until is not None:
        return Slice(relation, after, until, f"{relation}:{until}")
    further_relations = relations[relations.index(relation) + 1 :]
    return Slice(relation, after, None, f"{further_relations[0]}:" if further_relations else None)


def push(topic: str, feed_ids: Sequence[int]) -> int:
    """Write these posts of one topic into the timelines of all their recipients; returns about the
    number of entries."""
    places = ", ".join(["%s"] * len(feed_ids))
    relations = ", ".join(f"'{relation}'" for relation in RELATIONS_OF_TOPIC[topic])
    # In the order of the entries' key, so that neighbouring rows are written together.
    order = "ORDER BY r.fri_uid, f.id"
    return _write_entries(f"r.relation IN ({relations})", f"f.id IN ({places})", feed_ids, order)


def push_slice(feed_id: int, part: Slice) -> int:
    """Write one post into the timelines of the recipients of a slice; returns about the number of
    entries."""
    bounds = [part.after] if part.until is None else [part.after, part.until]
    upper_bound = "" if part.until is None else "AND r.fri_uid <= %s"
    relation = f"r.relation = %s AND r.fri_uid > %s {upper_bound}"
    return _write_entries(relation, "f.id = %s", [part.relation, *bounds, feed_id])


def _write_entries(
    relation: str, post: str, parameters: Sequence[str | int], order: str = ""
) -> int:
    """Write an entry for each relation and post that meet these conditions."""
    # Join order: posts, then the relations of each author, which are neighbours in the index.
    statement = (
        f"{_INSERT} FROM feed f {engines.of().ordered_join} friend r "
        f"ON r.biz_id = f.biz_id AND r.uid = f.uid AND {relation} "
        f"WHERE {post} AND f.delete_date IS NULL AND r.delivery > 0 {order}"
    )
    with connection.cursor() as cursor:
        cursor.execute(sql.keep_existing(statement, "feed_broadcast", "feed_id"), list(parameters))
        return max(0, int(cursor.rowcount))  # -1: the driver does not know
