"""Delete handled events: whole days where the table has partitions, else rows in chunks.

A day with an event that is not handled stays, and only its handled events are deleted. Every step
can be repeated.
"""

from __future__ import annotations

from datetime import datetime

from django.db.models import Q

from msgplatform.core.archive import partitions
from msgplatform.core.archive.ages import horizon
from msgplatform.core.archive.partitions import partitions_of
from msgplatform.core.data import transactions
from notify.feed.models import EventQueue
from notify.feed.retention import EVENTS, keep_events

CHUNK = 1000
_TABLE = EVENTS.tables[0]
_STATUS = EventQueue.Status
# Every topic is named, so that the index (topic, status, qid) can say that there are none.
_OPEN = Q(topic__in=EventQueue.Topic.values) & Q(
    status__in=[status for status in _STATUS.values if status != _STATUS.HANDLED]
)


def clean(now: datetime) -> bool:
    """One day, or a chunk of rows; whether there may be more."""
    partitions.prepare(EVENTS, now)
    before = horizon(now, keep_events())
    with partitions.alone(EVENTS) as mine:
        if not mine:
            return False
        parts = partitions_of(_TABLE)
        if not parts:
            return _delete_chunk(Q(qid__lt=before))
        # The first day also holds what is older.
        firsts = [0, *(part.first for part in parts[1:])]
        for first, part in zip(firsts, parts, strict=True):
            if not part.is_below(before):
                continue
            of_day = Q(qid__gte=first, qid__lt=part.bound)
            left = EventQueue.objects.filter(_OPEN & of_day)
            # Asked without a lock first, because it may take a while to find none; `drop` asks
            # again under its lock.
            if _delete_chunk(of_day) if left.exists() else partitions.drop(_TABLE, part, left):
                return True
        return False


def _delete_chunk(condition: Q) -> bool:
    """Delete some of the handled events; whether there were any."""
    done = 0
    for topic in EventQueue.Topic.values:
        handled = EventQueue.objects.filter(condition, topic=topic, status=_STATUS.HANDLED)
        qids = list(handled.order_by("qid").values_list("qid", flat=True)[:CHUNK])
        # The status once more: an event may have changed since it was read.
        gone = EventQueue.objects.filter(qid__in=qids, status=_STATUS.HANDLED)
        done += transactions.retrying(gone.delete)[0] if qids else 0
    return done > 0
