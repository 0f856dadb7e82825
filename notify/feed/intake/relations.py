"""Friendships, followers and blocks.

One transaction locks the users of its changes, so that other changes of these users (visits,
delivery of their posts) come before or after, and counts stay exact.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import partial, reduce
from operator import or_

import msgspec
from django.conf import settings
from django.db import connection, transaction
from django.db.models import Q
from django.utils.translation import gettext as _

from msgplatform.core.data import chunks, engines, ids, sql, transactions
from msgplatform.core.errors import UNAVAILABLE, InvalidInput, OutcomeUnknown
from msgplatform.core.intake.verdicts import Verdict, judge_each
from notify.feed.intake.posts import check_uid
from notify.feed.models import EventQueue, FeedUser, Friend
from notify.feed.models.events import UpkeepEvent, add_upkeep
from notify.feed.models.users import BLOCK, FOLLOW, FRIEND
from notify.feed.users import lock

CHUNK = 500  # changes in one transaction
_LOOKUP = 100  # pairs in one statement
# Codes of verdicts on rejected changes that may be possible later.
BLOCKED, FULL = "blocked", "limit"
Key = tuple[str, str, str]  # author, relation, reader


class Action(StrEnum):
    """An action of a user on another one."""

    BEFRIEND = "befriend"
    UNFRIEND = "unfriend"
    FOLLOW = "follow"
    UNFOLLOW = "unfollow"
    BLOCK = "block"
    UNBLOCK = "unblock"


class Change(msgspec.Struct, frozen=True):
    """`uid` follows (befriends, blocks …) `other`."""

    biz: int
    action: str
    uid: str
    other: str


class _Plan(msgspec.Struct):
    """The relations of the users of one transaction, before and after its changes."""

    before: set[Key]
    after: set[Key]  # each change starts from the relations after the changes before it
    authors: Counter[str]  # reader → number of relations that bring posts

    @property
    def new_keys(self) -> list[Key]:
        return sorted(self.after - self.before)

    @property
    def old_keys(self) -> list[Key]:
        return sorted(self.before - self.after)


def check(change: Change) -> Change:
    """Raises InvalidInput."""
    check_uid(change.uid)
    check_uid(change.other, "other")
    if change.action not in list(Action):
        raise InvalidInput(_("Use one of: %s.") % ", ".join(Action), "action")
    if change.uid == change.other:
        raise InvalidInput(_("This is the same user as uid."), "other")
    return change


def change_many(changes: Sequence[Change]) -> list[Verdict]:
    """Apply changes of one business system in their order. The verdicts are in the same order:
    created for a change, duplicate when the relation was so already.

    A change that a block forbids is rejected. Each CHUNK is a separate transaction. Must not run
    inside a transaction of the caller. Raises OperationalError when the database is unavailable,
    and OutcomeUnknown if it becomes unavailable after the first transaction.
    """

    def apply(changes: Sequence[Change]) -> list[Verdict]:
        verdicts: list[Verdict] = []
        for chunk in chunks(changes, CHUNK):
            # Ids for events. A change adds or removes at most two rows of each of the three
            # relations, and both users may cross a threshold: 3 * 2 + 2.
            try:
                block = ids.reserve(8 * len(chunk))
                verdicts += transactions.retrying(partial(_apply_chunk, chunk, block))
            except UNAVAILABLE as error:
                if verdicts:
                    raise OutcomeUnknown from error
                raise
        return verdicts

    return judge_each(changes, check, apply)


@transaction.atomic(durable=True)
def _apply_chunk(changes: Sequence[Change], block: ids.Block) -> list[Verdict]:
    (biz,) = {change.biz for change in changes}
    users = lock(biz, {uid for change in changes for uid in (change.uid, change.other)})
    authors = Counter({uid: user.authors for uid, user in users.items()})
    before = _read_relations(biz, changes)
    plan = _Plan(before, set(before), authors)
    verdicts = [_add_to_plan(change, plan) for change in changes]
    now = sql.now()
    both, merged = int(Friend.Delivery.BOTH), int(Friend.Delivery.MERGED)
    sql.insert_or_keep(
        Friend._meta.db_table,
        ("biz_id", "uid", "relation", "fri_uid", "delivery", "create_date"),
        [
            (biz, uid, relation, reader, both if users[reader].active else merged, now)
            for uid, relation, reader in plan.new_keys
        ],
    )
    for keys in chunks(plan.old_keys, _LOOKUP):
        conditions = (Q(biz_id=biz, uid=uid, relation=rel, fri_uid=fri) for uid, rel, fri in keys)
        Friend.objects.filter(reduce(or_, conditions)).delete()
    # Inactive readers have no written entries, so there is nothing to backfill or to remove.
    new_readers = {reader for _uid, relation, reader in plan.new_keys if relation != BLOCK}
    removed_pairs = {(uid, reader) for uid, relation, reader in plan.old_keys if relation != BLOCK}
    kinds = EventQueue.Kind
    events = [
        *(UpkeepEvent(biz, r, kinds.BACKFILL) for r in sorted(new_readers) if users[r].active),
        *(
            UpkeepEvent(biz, uid, kinds.UNFOLLOW, {"reader": reader})
            for uid, reader in sorted(removed_pairs)
            if users[reader].active
        ),
        *_count(biz, plan, users),
    ]
    if events:
        add_upkeep(events, block, now)
    return verdicts


def _read_relations(biz: int, changes: Sequence[Change]) -> set[Key]:
    """The relations between the two users of each change, in both directions."""
    pairs = {pair for c in changes for pair in ((c.uid, c.other), (c.other, c.uid))}
    kinds = Friend.Relation.values
    keys = [(uid, relation, other) for uid, other in sorted(pairs) for relation in kinds]
    # A join finds each relation by its primary key. With a long OR, or an IN of rows, MariaDB reads
    # all relations of the author.
    engine = engines.of()
    places = ", ".join([f"{engine.row_word}(%s, %s, %s)"] * len(keys))
    with connection.cursor() as cursor:
        cursor.execute(
            f"WITH k (uid, relation, fri_uid) AS (VALUES {places})"  # noqa: S608
            f" SELECT f.uid, f.relation, f.fri_uid FROM k {engine.ordered_join} friend f"
            " ON f.biz_id = %s AND f.uid = k.uid AND f.relation = k.relation"
            " AND f.fri_uid = k.fri_uid",
            [*(part for key in keys for part in key), biz],
        )
        return set(cursor.fetchall())


def _add_to_plan(change: Change, plan: _Plan) -> Verdict:
    """Add a change to the plan, after all earlier changes; returns the verdict."""
    add, remove = _relations_after(change)
    blocks = {(change.uid, BLOCK, change.other), (change.other, BLOCK, change.uid)}
    if change.action != Action.BLOCK and add and (blocks_between := sorted(plan.after & blocks)):
        blocked_uid, _relation, blocker = blocks_between[0]
        reason = _("%(who)s has blocked %(whom)s.") % {"who": blocker, "whom": blocked_uid}
        return Verdict("rejected", code=BLOCKED, field="other", reason=reason)
    added_keys, removed_keys = add - plan.after, remove & plan.after
    if not added_keys and not removed_keys:
        return Verdict("duplicate")
    authors = plan.authors.copy()
    readers = [reader for _uid, relation, reader in added_keys if relation != BLOCK]
    authors.update(readers)
    for reader in readers:
        if authors[reader] > settings.FEED_MAX_AUTHORS:
            reason = _(
                "%(uid)s has %(most)d relations that bring posts (a friend who is followed too "
                "counts twice), which is the most there can be."
            )
            values = {"uid": reader, "most": settings.FEED_MAX_AUTHORS}
            field = "uid" if reader == change.uid else "other"
            return Verdict("rejected", code=FULL, field=field, reason=reason % values)
    authors.subtract(reader for _uid, relation, reader in removed_keys if relation != BLOCK)
    plan.authors = authors
    plan.after = (plan.after - removed_keys) | added_keys
    return Verdict("created")


def _relations_after(change: Change) -> tuple[set[Key], set[Key]]:
    """The relations that must exist after a change, and the relations that must not."""
    uid, other = change.uid, change.other
    friendship = {(uid, FRIEND, other), (other, FRIEND, uid)}
    follow, block = (other, FOLLOW, uid), (other, BLOCK, uid)
    match change.action:
        case Action.BEFRIEND:
            return friendship, set()
        case Action.UNFRIEND:
            return set(), friendship
        case Action.FOLLOW:
            return {follow}, set()
        case Action.UNFOLLOW:
            return set(), {follow}
        case Action.BLOCK:
            return {block}, friendship | {follow, (uid, FOLLOW, other)}
        case _:
            return set(), {block}


def _count(biz: int, plan: _Plan, users: dict[str, FeedUser]) -> Iterable[UpkeepEvent]:
    """Count recipients and authors. Yield events for authors who now have very many recipients."""
    differences: Counter[tuple[str, str]] = Counter()
    differences.update((uid, relation) for uid, relation, _reader in plan.new_keys)
    differences.subtract((uid, relation) for uid, relation, _reader in plan.old_keys)
    for column, relation in (("friends", FRIEND), ("followers", FOLLOW)):
        numbers = {uid: number for (uid, rel), number in differences.items() if rel == relation}
        for uid, number in numbers.items():
            setattr(users[uid], column, getattr(users[uid], column) + number)
        _add_counts(biz, column, numbers)
    authors = {uid: plan.authors[uid] - user.authors for uid, user in users.items()}
    _add_counts(biz, "authors", authors)
    merging = FeedUser.Merging
    for uid in sorted({author for author, _relation in differences}):
        user, new_merging = users[uid], None
        recipients = user.friends + user.followers
        if user.merging == merging.PUSHED and recipients > settings.FEED_READ_FANOUT_ABOVE:
            new_merging = merging.BECOMING
            yield UpkeepEvent(biz, uid, EventQueue.Kind.MERGE)
        elif user.merging == merging.MERGED and recipients < settings.FEED_WRITE_FANOUT_BELOW:
            # An author in the state "becoming" is not changed here: the end of the merge event
            # looks at the number of recipients.
            new_merging = merging.PUSHED
        if new_merging is not None:
            FeedUser.objects.filter(biz_id=biz, uid=uid).update(merging=new_merging)


def _add_counts(biz: int, column: str, numbers: Mapping[str, int]) -> None:
    rows = [((biz, uid), number) for uid, number in numbers.items() if number]
    sql.add_counters(FeedUser._meta.db_table, ("biz_id", "uid"), rows, value=column)
