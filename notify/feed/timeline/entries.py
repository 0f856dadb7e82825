"""The written part of a timeline: entries whose posts the reader may still see."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import connection

from msgplatform.core.data import sql
from notify.feed.models.posts import Topic
from notify.feed.models.users import NOTHING_WRITTEN, Friend
from notify.feed.timeline.wanted import Parameters, Wanted

VISIT_SECONDS = 3600
_VISIBLE = "(f.uid = b.fri_uid OR friendship.uid IS NOT NULL OR follow.uid IS NOT NULL)"


@dataclass(frozen=True, slots=True)
class Reader:
    """The timeline is written above `floor`; `due`: a visit has to be noted."""

    active: bool = False
    floor: int = NOTHING_WRITTEN
    due: bool = True


def written(wanted: Wanted, limit: int) -> tuple[Reader, list[int]]:
    """The reader, and the newest posts that are written above the floor, newest first.

    One statement: between two, the cleaner could raise the floor and delete what is below.
    """
    conditions, parameters = wanted.conditions()
    floor = "(SELECT floor FROM feed_user WHERE biz_id = %s AND uid = %s)"
    own = "" if wanted.own else "AND f.uid <> b.fri_uid "
    statement = (
        f"SELECT u.active, u.floor, u.visit_date IS NULL OR u.visit_date < "  # noqa: S608
        f"{sql.now_sql(-VISIT_SECONDS)}, e.feed_id FROM feed_user u LEFT JOIN ("
        f"SELECT b.feed_id FROM feed_broadcast b {sql.ordered_join()} feed f ON f.id = b.feed_id "
        f"{_relations()} "
        f"WHERE b.biz_id = %s AND b.fri_uid = %s AND b.feed_id < %s AND b.feed_id > %s "
        f"AND b.feed_id > {floor} AND {conditions} {own} AND {_VISIBLE} "
        "ORDER BY b.feed_id DESC LIMIT %s) e ON 1 = 1 WHERE u.biz_id = %s AND u.uid = %s"
    )
    user: Parameters = [wanted.biz, wanted.uid]
    with connection.cursor() as cursor:
        cursor.execute(
            statement, [*user, wanted.before, wanted.after, *user, *parameters, limit, *user]
        )
        rows = cursor.fetchall()
    # A user without entries is one row without a post (LEFT JOIN); one who is not known has none.
    if not rows:
        return Reader(), []
    active, floor_now, due, _ = rows[0]
    found = sorted((row[3] for row in rows if row[3] is not None), reverse=True)
    return Reader(bool(active), floor_now, bool(due)), found


def _relations() -> str:
    """Joins of the reader's relations to the author of an entry: an entry may outlive them."""
    # By primary key: from an EXISTS, MariaDB would make a list of everybody's relations.
    force = "FORCE INDEX (PRIMARY)" if connection.vendor == "mysql" else ""
    join = (
        f"LEFT JOIN friend {{name}} {force} ON {{name}}.biz_id = b.biz_id "
        "AND {name}.uid = f.uid AND {name}.relation = '{relation}' AND {name}.fri_uid = b.fri_uid "
    )
    friendship = join.format(name="friendship", relation=Friend.Relation.FRIEND.value)
    follow = join.format(name="follow", relation=Friend.Relation.FOLLOW.value)
    return f"{friendship} {follow} AND f.topic = '{Topic.VIP.value}'"
