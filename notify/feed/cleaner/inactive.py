"""Posts are no longer written for readers who have stayed away for long."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

from django.conf import settings
from django.db import transaction

from msgplatform.core.data import transactions
from notify.feed.models import FeedUser, Friend
from notify.feed.models.users import NOTHING_WRITTEN
from notify.feed.users import lock

PAGE = 100
_DELIVERY = Friend.Delivery


def deactivate(now: datetime) -> bool:
    """A page of such readers; whether there may be more. The walk through all timelines deletes
    their entries."""
    before = now - timedelta(days=settings.FEED_ACTIVE_DAYS)

    @transaction.atomic(durable=True)
    def deactivate_one(biz: int, uid: str) -> None:
        user = lock(biz, [uid])[uid]
        if not user.active or user.visit_date is None or user.visit_date >= before:
            return  # the reader came back at this moment
        rows = FeedUser.objects.filter(biz_id=biz, uid=uid)
        # From this commit on every page is merged at read, so that entries may go at any time.
        rows.update(active=False, floor=NOTHING_WRITTEN)
        Friend.objects.filter(
            biz_id=biz,
            fri_uid=uid,
            delivery__in=(_DELIVERY.BOTH, _DELIVERY.PUSHED),
            relation__in=(Friend.Relation.FRIEND, Friend.Relation.FOLLOW),
        ).update(delivery=_DELIVERY.MERGED)

    rows = FeedUser.objects.filter(active=True, visit_date__lt=before).order_by("visit_date")
    page = list(rows.values_list("biz_id", "uid")[:PAGE])
    for biz, uid in page:
        transactions.retrying(partial(deactivate_one, biz, uid))
    return len(page) == PAGE
