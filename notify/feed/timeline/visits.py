"""Note visits: from a reader's first visit on, posts are written into their timeline."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from django.db import transaction
from django.db.models import Q

from msgplatform.core import logging
from msgplatform.core.data import ids, sql, transactions
from msgplatform.core.errors import UNAVAILABLE
from notify.feed import upkeep_events
from notify.feed.models import EventQueue, FeedUser, Friend
from notify.feed.timeline import merge
from notify.feed.timeline.entries import VISIT_SECONDS
from notify.feed.timeline.find import Found
from notify.feed.users import lock

log = logging.get(__name__)


def note(biz: int, uid: str, found: Found) -> None:
    """Note a visit; of an active reader at most once an hour.

    A visit that cannot be noted now is noted with the next page: this page is answered anyway.
    """
    if found.reader.active and not found.reader.due:
        return
    try:
        block = ids.reserve(1)
        if found.reader.active:
            transactions.retrying(partial(_note_hour, biz, uid, block))
        else:
            transactions.retrying(partial(_activate, biz, uid, block))
    except UNAVAILABLE as error:
        log.warning("visit_not_noted", biz=biz, why=str(error)[:200])


def _activate(biz: int, uid: str, block: ids.Block) -> None:
    """Make the reader active; a backfill writes the posts of the time before."""
    with transaction.atomic(durable=True):
        if lock(biz, [uid])[uid].active:
            return  # another page of the same reader was quicker
        now = sql.now()
        FeedUser.objects.filter(biz_id=biz, uid=uid).update(active=True, visit_date=now)
        # Committed before the backfill reads posts, so that whatever is posted later is written by
        # its own event.
        relations = Friend.objects.filter(
            biz_id=biz, fri_uid=uid, relation__in=(Friend.Relation.FRIEND, Friend.Relation.FOLLOW)
        )
        relations.exclude(delivery=Friend.Delivery.BOTH).update(delivery=Friend.Delivery.BOTH)
        upkeep_events.add([upkeep_events.Event(biz, uid, EventQueue.Kind.BACKFILL)], block, now)


def _note_hour(biz: int, uid: str, block: ids.Block) -> None:
    """Note the visit of an active reader; a backfill writes the posts of authors who had so many
    recipients once that they were merged, and are no longer merged for others."""
    pushed = bool(merge.to_be_written(biz, uid, 1))
    with transaction.atomic(durable=True):
        now = sql.now()
        hour_ago = now - timedelta(seconds=VISIT_SECONDS)
        # Only one of several pages changes the row, and adds the event.
        rows = FeedUser.objects.filter(
            Q(visit_date=None) | Q(visit_date__lt=hour_ago), biz_id=biz, uid=uid, active=True
        )
        if rows.update(visit_date=now) and pushed:
            upkeep_events.add([upkeep_events.Event(biz, uid, EventQueue.Kind.BACKFILL)], block, now)
