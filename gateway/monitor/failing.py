"""Gateways at which every message fails: connected, and of no use.

By the pump's counters, so a message counts when it is archived. A single message that was
delivered, or accepted without a Report to come, ends it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import timedelta

from django.conf import settings
from django.db.models import Sum
from django.utils.translation import gettext_noop as _

from gateway.failures import FLOW
from gateway.models import SgipMt, SmsGateway
from msgplatform.core.alerts import Condition
from msgplatform.core.data import sql
from msgplatform.core.lazy_text import lazy_message
from msgplatform.models import MinuteCounter

KIND = "sms.failing"
LEAST = 10  # messages: of two wrong numbers nobody needs to hear
_Final = SgipMt.Final
_GOOD = (_Final.DELIVERED, _Final.ACCEPTED)


def conditions() -> Iterator[Condition]:
    """An alert for each gateway whose every message of SMS_FAILING_MINUTES failed."""
    minutes = settings.SMS_FAILING_MINUTES
    if not minutes:
        return
    counts = _counts(minutes)
    names = dict(SmsGateway.objects.filter(enabled=True, id__in=counts).values_list("id", "name"))
    for pk, name in sorted(names.items()):
        failed_count = counts[pk].total() - sum(counts[pk][final] for final in _GOOD)
        if failed_count >= LEAST and failed_count == counts[pk].total():
            yield Condition(
                f"{KIND}:{pk}",
                lazy_message(_("Every message fails at the gateway %(name)s"), name=name),
                lazy_message(
                    _(
                        "%(failed)d messages ended in the last %(minutes)s minutes, and none was "
                        "delivered."
                    ),
                    failed=failed_count,
                    minutes=f"{minutes:g}",
                ),
            )


def _counts(minutes: float) -> dict[int, Counter[str]]:
    """Gateway → ending → how many; a range of the index on minutes."""
    since = sql.now() - timedelta(minutes=minutes)
    rows = MinuteCounter.objects.filter(
        minute__gte=since, flow=FLOW, subject__lt=0, name__in=_Final.values
    )
    endings: dict[int, Counter[str]] = defaultdict(Counter)
    sums = rows.order_by().values_list("subject", "name").annotate(Sum("value"))
    for subject, name, value in sums:
        endings[-subject][name] += value
    return endings
