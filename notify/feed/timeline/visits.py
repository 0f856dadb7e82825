"""Readers who come: from then on, posts are written into their timelines."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from django.db import transaction
from django.db.models import Q

from msgplatform.core import logging
from msgplatform.core.daemons.away import AWAY
from msgplatform.core.data import ids, sql
from notify.feed import events
from notify.feed.models import EventQueue, FeedUser, Friend
from notify.feed.timeline import merge
from notify.feed.timeline.entries import VISIT_SECONDS
from notify.feed.timeline.find import Found
from notify.feed.users import lock

log = logging.get(__name__)


def note(biz: int, uid: str, found: Found) -> None:
    """Note a visit, at most once an hour of an active reader.

    What cannot be noted now is noted with the next page: this one has been read.
    """
    if found.reader.active and not found.reader.due:
        return
    try:
        block = ids.reserve(1)
        if found.reader.active:
            sql.retrying(partial(_go_on, biz, uid, block))
        else:
            sql.retrying(partial(_begin, biz, uid, block))
    except AWAY as error:
        log.warning("visit_not_noted", biz=biz, why=str(error)[:200])


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


def _go_on(biz: int, uid: str, block: ids.Block) -> None:
    """Note the hour; authors who are merged for this reader only, since they had more recipients
    once, are written again."""
    pushed = bool(merge.to_be_written(biz, uid, 1))
    with transaction.atomic(durable=True):
        now = sql.now()
        hour_ago = now - timedelta(seconds=VISIT_SECONDS)
        rows = FeedUser.objects.filter(
            Q(visit_date=None) | Q(visit_date__lt=hour_ago), biz_id=biz, uid=uid, active=True
        )
        if rows.update(visit_date=now) and pushed:
            events.add([events.Event(biz, uid, EventQueue.Kind.BACKFILL)], block, now)
