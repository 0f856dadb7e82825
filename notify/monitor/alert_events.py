"""Publishes alerts through Notify itself, as events of the business system named `platform`.

Make a business system with that name (enabled) and subscribe consumers: a chat, a pager, a mail
gateway. The consumers get `platform.alert` when an alert is opened and `platform.alert.resolved`
when it is over, with {"kind", "subject", "text", "key", "count"}. An alert that is open already
counts up in the console and sends nothing.

The idempotency key is made of the alert's id, so an event that several processes publish, or that
`MissedAlerts` publishes again, is accepted once. Alerts about a subscription of `platform` are only
shown in the console, because they would report their own delivery.
"""

import re
from collections.abc import Iterable
from datetime import timedelta

import msgspec
from django.db.models import Q

from msgplatform.core import alerts, logging, personal
from msgplatform.core.daemons.timer import Every
from msgplatform.core.data import ids, sql
from msgplatform.jobs.upkeep import Upkeep
from msgplatform.models import Alert, Biz
from notify.intake import intake
from notify.models import BizReceive, IdempotencyKey

log = logging.get(__name__)

BIZ_NAME = "platform"
RAISED, RESOLVED = "platform.alert", "platform.alert.resolved"
# Within this time another process publishes alerts that a killed process did not publish.
_MISSED = timedelta(hours=1)
_LOOK_EVERY_SECONDS = 60.0
_MAX_ALERTS = 100
_MAX_TEXT = 4000
_OF_SUBSCRIPTION = re.compile(r"notify\.[a-z_]+:(\d{1,18})")


def register() -> None:
    """Make Notify the way out; called when the app is ready."""
    alerts.register("notify", announce)


def announce(event: alerts.AlertEvent) -> None:
    """Publish one alert, outside of a transaction. Without the business system do nothing."""
    biz = _system_id()
    if biz is not None:
        _publish(biz, [event])


class MissedAlerts(Upkeep):
    """Publishes alerts that were opened or resolved lately and not published.

    The columns of times have no index. So the first look of a process reads the whole table, and a
    later look reads the newest alerts and the alerts that were open at the look before.
    """

    def __init__(self) -> None:
        self._next = Every(_LOOK_EVERY_SECONDS)
        # Alerts that are open or ended lately; None before the first look.
        self._watched_ids: set[int] | None = None

    def turn(self) -> bool:
        if self._next.take():
            self.announce()
        return False

    def announce(self) -> int:
        """Publish missed alerts; returns the number of events."""
        biz = _system_id()
        if biz is None:
            self._watched_ids = None
            return 0
        since = sql.now() - _MISSED
        # Open alerts are read first: the next look then sees the end of an alert resolved meanwhile
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
        # The next look reads alerts again that were opened or resolved in the last hour.
        self._watched_ids = open_ids | {row.pk for row in rows}
        return count


def _system_id() -> int | None:
    """The id of the business system `platform`; None if there is none."""
    return Biz.objects.filter(name=BIZ_NAME, enabled=True).values_list("id", flat=True).first()


def _publish(biz: int, alert_events: Iterable[alerts.AlertEvent]) -> int:
    events = []
    for alert in alert_events:
        match = _OF_SUBSCRIPTION.fullmatch(alert.key)
        if match and BizReceive.objects.filter(pk=int(match[1]), biz_id=biz).exists():
            continue
        # Without people's telephone numbers and addresses, because chats and mails get the event.
        payload = {
            "kind": alert.kind,
            "subject": personal.mask_sentence(alert.subject),
            "text": personal.mask_sentence(alert.text[:_MAX_TEXT]),
            "key": alert.key,
            "count": alert.count,
        }
        event_type = RESOLVED if alert.resolved else RAISED
        key = f"{event_type}:{alert.id}" if alert.id else None
        events.append(intake.Event(biz, event_type, msgspec.json.encode(payload), key))
    # Publish only events with a new key, to save the write of a duplicate.
    condition = Q(pk__in=[])
    for event in events:
        key = event.idempotency_key
        if key is not None:
            condition |= Q(bucket=ids.bucket(biz, key), biz_id=biz, key=key)
    old_keys = set(IdempotencyKey.objects.filter(condition).values_list("key", flat=True))
    new_events = [event for event in events if event.idempotency_key not in old_keys]
    if not new_events:
        return 0
    verdicts = intake.publish_many(new_events)
    for event, verdict in zip(new_events, verdicts, strict=True):
        # A conflict means that another process published the same alert with another count.
        if verdict.outcome == "rejected" and verdict.code != "conflict":
            log.error("alert_not_published", key=event.idempotency_key, why=verdict.reason)
    return sum(verdict.outcome == "created" for verdict in verdicts)
