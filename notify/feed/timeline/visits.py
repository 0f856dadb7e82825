"""Readers who come: from then on, posts are written into their timelines."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from django.db import transaction
from django.db.models import Q

from msgplatform.core.data import ids, sql
from notify.feed import events
from notify.feed.models import EventQueue, FeedUser, Friend
from notify.feed.timeline.entries import VISIT_SECONDS
from notify.feed.timeline.find import Found
from notify.feed.users import lock

_AUTHORS = 500  # asked whether they are pushed


def note(biz: int, uid: str, found: Found) -> None:
    """Note a visit, at most once an hour of an active reader."""
    if not found.reader.active:
        block = ids.reserve(1)
        sql.retrying(partial(_begin, biz, uid, block))
    elif found.reader.due:
        block = ids.reserve(1)
        sql.retrying(partial(_go_on, biz, uid, found, block))


def _begin(biz: int, uid: str, block: ids.Block) -> None:
    """Make the reader active; what there is by now is written by a backfill."""
    with transaction.atomic(durable=True):
        if lock(biz, [uid])[uid].active:
            return
        now = sql.now()
        FeedUser.objects.filter(biz_id=biz, uid=uid).update(active=True, visit_date=now)
        # Before the backfill reads posts: whatever is posted later is written by its own event.
        relations = Friend.objects.filter(
            biz_id=biz, fri_uid=uid, relation__in=(Friend.Relation.FRIEND, Friend.Relation.FOLLOW)
        )
        relations.exclude(delivery=Friend.Delivery.BOTH).update(delivery=Friend.Delivery.BOTH)
        events.add([events.Event(biz, uid, EventQueue.Kind.BACKFILL)], block, now)


def _go_on(biz: int, uid: str, found: Found, block: ids.Block) -> None:
    """Note the hour; authors who are merged for this reader only, since they had more recipients
    once, are written again."""
    authors = sorted({author for author, _topic in found.merged})[:_AUTHORS]
    pushed = FeedUser.objects.filter(
        biz_id=biz, uid__in=authors, merging=FeedUser.Merging.PUSHED
    ).exists()
    with transaction.atomic(durable=True):
        now = sql.now()
        hour_ago = now - timedelta(seconds=VISIT_SECONDS)
        rows = FeedUser.objects.filter(
            Q(visit_date=None) | Q(visit_date__lt=hour_ago), biz_id=biz, uid=uid, active=True
        )
        if rows.update(visit_date=now) and pushed:
            events.add([events.Event(biz, uid, EventQueue.Kind.BACKFILL)], block, now)
