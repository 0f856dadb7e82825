"""Alerts go out through Notify itself: as events of the business system named `platform`.

Make a business system with that name (enabled) and subscribe consumers to it: a chat, a pager, a
mail gateway. They get `platform.alert` when an alert is opened and `platform.alert.resolved` when
it is over, both with {"kind", "subject", "text", "key", "count"}. An alert that is open already
counts up in the console and sends nothing.

The idempotency key is made of the alert's id, so an event that several processes publish, or that
is published again by `MissedAlerts`, is one. Alerts about a subscription of `platform` are
only shown in the console: they would report their own delivery.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta

import msgspec
from django.db.models import Q

from msgplatform.core import alerts, logging, personal
from msgplatform.core.data import ids, sql
from msgplatform.models import Alert, Biz
from notify.intake import intake
from notify.models import BizReceive, IdempotencyKey

log = logging.get(__name__)

BIZ_NAME = "platform"
RAISED, RESOLVED = "platform.alert", "platform.alert.resolved"
# Alerts that a killed process did not publish are published within this time by another one.
_MISSED = timedelta(hours=1)
_MAX_ALERTS = 100
_MAX_TEXT = 4000
_OF_SUBSCRIPTION = re.compile(r"notify\.[a-z_]+:(\d{1,18})")


def register() -> None:
    """Make Notify the way out; called when the app is ready."""
    alerts.register("notify", announce)


def announce(event: alerts.AlertEvent) -> None:
    """Publish one alert, outside of a transaction; without the business system nothing happens."""
    biz = _system_id()
    if biz is not None:
        _publish(biz, [event])


class MissedAlerts:
    """Publishes alerts that were opened or resolved lately and not published.

    The times have no index: the first look of a process reads the whole table. Each later one reads
    the newest alerts, and those that were open at the look before.
    """

    def __init__(self) -> None:
        # Alerts whose end is still to come, or came lately; None before the first look.
        self._watched_ids: set[int] | None = None

    def announce(self) -> int:
        """Publish them; returns the number of events."""
        biz = _system_id()
        if biz is None:
            self._watched_ids = None
            return 0
        since = sql.now() - _MISSED
        # Read first: the end of an alert that is resolved after this is seen by the next look.
        open_rows = Alert.objects.filter(open_key__isnull=False).order_by()
        open_ids = set(open_rows.values_list("id", flat=True))
        recent = Alert.objects.filter(Q(first_at__gte=since) | Q(resolved_at__gte=since))
        if self._watched_ids is None:
            rows = list(recent.order_by("-id")[:_MAX_ALERTS])
        else:
            newest_ids = Alert.objects.order_by("-id").values_list("id", flat=True)[:_MAX_ALERTS]
            closed_ids = sorted(self._watched_ids - open_ids)[-_MAX_ALERTS:]
            rows = list(recent.filter(id__in={*newest_ids, *closed_ids}).order_by("-id"))
        events = []
        for row in reversed(rows):
            if row.first_at >= since:
                events.append(row.as_event())
            if row.resolved_at and row.resolved_at >= since:
                events.append(row.as_event(is_resolved=True))
        count = _publish(biz, events)
        # Ends of the last hour are looked at again, as alerts are that were opened in it.
        self._watched_ids = open_ids | {row.pk for row in rows}
        return count


def _system_id() -> int | None:
    """The business system whose events are alerts; None without it."""
    return Biz.objects.filter(name=BIZ_NAME, enabled=True).values_list("id", flat=True).first()


def _publish(biz: int, alert_events: Iterable[alerts.AlertEvent]) -> int:
    events = []
    for alert in alert_events:
        about = _OF_SUBSCRIPTION.fullmatch(alert.key)
        if about and BizReceive.objects.filter(pk=int(about[1]), biz_id=biz).exists():
            continue
        # No telephone numbers and addresses of people: it goes to chats, mails and pagers.
        payload = {
            "kind": alert.kind,
            "subject": personal.in_sentence(alert.subject),
            "text": personal.in_sentence(alert.text[:_MAX_TEXT]),
            "key": alert.key,
            "count": alert.count,
        }
        event_type = RESOLVED if alert.resolved else RAISED
        key = f"{event_type}:{alert.id}" if alert.id else None
        events.append(intake.Event(biz, event_type, msgspec.json.encode(payload), key))
    # Only events whose key is new: publishing an old one again would be a write for nothing.
    condition = Q(pk__in=[])
    for event in events:
        key = event.idempotency_key
        if key is not None:
            condition |= Q(bucket=ids.bucket(biz, key), biz_id=biz, key=key)
    old_keys = set(IdempotencyKey.objects.filter(condition).values_list("key", flat=True))
    missing = [event for event in events if event.idempotency_key not in old_keys]
    if not missing:
        return 0
    verdicts = intake.publish_many(missing)
    for event, verdict in zip(missing, verdicts, strict=True):
        # A conflict is the same alert, published by another process when it had another count.
        if verdict.outcome == "rejected" and verdict.code != "conflict":
            log.error("alert_not_published", key=event.idempotency_key, why=verdict.reason)
    return sum(verdict.outcome == "created" for verdict in verdicts)
