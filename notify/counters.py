"""Per-minute counters of each subscription, added in the transaction that marks."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from django.db.models import Sum
from django.utils import timezone

from msgplatform.core import sql
from msgplatform.models import MinuteCounter
from notify.models import BizReceive

Counts = Counter[tuple[int, str]]  # (subscription, counter name) → how many


def add(counts: Counts) -> None:
    """Add to the current minute; rows are sorted, so that two markers cannot deadlock."""
    changed = {key: value for key, value in counts.items() if value}
    if not changed:
        return
    wanted = {subscription for subscription, _ in changed}
    biz = dict(BizReceive.objects.filter(id__in=wanted).values_list("id", "biz_id"))
    minute = timezone.now().replace(second=0, microsecond=0)
    sql.add_counters(
        "msgplatform_minutecounter",
        ("minute", "flow", "biz_id", "subject", "name"),
        [
            ((minute, "notify", biz.get(subscription, 0), subscription, name), value)
            for (subscription, name), value in sorted(changed.items())
        ],
    )


def last_hour(name: str) -> int:
    """The sum of one counter over all subscriptions in the last 60 minutes."""
    since = timezone.now() - timedelta(hours=1)
    rows = MinuteCounter.objects.filter(minute__gte=since, flow="notify", name=name)
    return int(rows.aggregate(total=Sum("value"))["total"] or 0)
