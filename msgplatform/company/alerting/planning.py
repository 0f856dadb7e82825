"""From alerts to messages: which rules are about an alert, which channel gets which news, in which
message, and when.

Two processes may do all of this at once, or again after one has died: a notice is unique, and news
is deleted in the transaction that writes its notices.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from django.apps import apps
from django.db import transaction
from django.db.models import Max, Q

from msgplatform.company.alerting.models import AlertChannel, AlertMessage, AlertNotice, AlertRule
from msgplatform.core.data import sql
from msgplatform.models import Alert, AlertNews
from msgplatform.models.alerts import Severity
from msgplatform.monitor import runbooks
from msgplatform.monitor.watch import CHANNEL

_BATCH = 100  # news of one transaction
# An alert that begins more often than this in an hour flaps: its further news waits for the next
# half hour and is one message.
MAX_BEGINNINGS = 3
MAX_NOTICES = 100  # of one message: all calls for it to a pager share the time of one send
FLAPPING_SECONDS = 1800
Event = AlertNotice.Event
State = AlertMessage.State
_NEVER = datetime.max.replace(tzinfo=UTC)
_NUMBER = re.compile(r"\d{1,18}")


class Period(NamedTuple):
    """The period in which news is to be sent: the news joins no message outside of this period."""

    earliest: datetime
    latest: datetime


def severity_of(kind: str) -> Severity:
    """The severity of alerts of this kind."""
    book = runbooks.find(kind)
    return Severity(book.severity) if book else Severity.WARNING


def is_about(rule: AlertRule, alert: Alert, system: int | None) -> bool:
    """True if the rule covers the alert, which is about this business system. A kind of the rule
    equals the alert's or its beginning (`sms.*`); a rule without kinds covers all."""
    name = alert.kind.partition(":")[0]
    is_of_kinds = not rule.kinds or any(
        name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1]))
        for pattern in rule.kinds
    )
    system_ids = {row.pk for row in rule.systems.all()}
    is_severe = severity_of(alert.kind).rank >= Severity(rule.min_severity).rank
    return is_severe and is_of_kinds and (not system_ids or system in system_ids)


def channels_about(
    rules: Iterable[AlertRule], alert: Alert, system: int | None
) -> Iterator[tuple[AlertRule, AlertChannel]]:
    """Each rule about this alert with each of its channels. A channel gets no alert about its own
    failure."""
    for rule in rules:
        if is_about(rule, alert, system):
            for channel in rule.channels.all():
                if not channel.is_heartbeat and alert.key != f"{CHANNEL}:{channel.pk}":
                    yield rule, channel


def systems_of(alerts: Iterable[Alert]) -> Mapping[int, int | None]:
    """Alert id → id of the business system that the alert is about. One statement for each model of
    rows that alerts are about."""
    result: dict[int, int | None] = {}
    subjects: dict[str, dict[int, int]] = defaultdict(dict)  # model → alert → id of the row
    for alert in alerts:
        result[alert.pk] = None
        book = runbooks.find(alert.kind)
        subject = alert.key.removeprefix(f"{alert.kind}:")
        if book and book.model and _NUMBER.fullmatch(subject):
            subjects[book.model][alert.pk] = int(subject)
    for label, row_ids in subjects.items():
        if not runbooks.has_system(label):
            continue
        rows = apps.get_model(label)._default_manager.filter(pk__in=set(row_ids.values()))
        owners = dict(rows.values_list("pk", "biz_id"))
        result |= {alert: owners.get(row) for alert, row in row_ids.items()}
    return result


def plan(now: datetime) -> None:
    """Plan the news about alerts since the last time, at most one batch."""
    news = list(AlertNews.objects.select_related("alert").order_by("id")[:_BATCH])
    if not news:
        return
    rules = list(AlertRule.objects.filter(enabled=True).prefetch_related("systems", "channels"))
    systems = systems_of(row.alert for row in news) if rules else {}
    with transaction.atomic():
        for row in news if rules else ():
            if row.is_end:
                continue
            # Each channel gets the news once: of several rules, by the one that sends earliest.
            severity = severity_of(row.alert.kind)
            earliest: dict[AlertChannel, tuple[datetime, AlertRule]] = {}
            for rule, channel in channels_about(rules, row.alert, systems[row.alert.pk]):
                period = _period(rule, severity, now)
                at = period.latest if period else _NEVER  # quiet hours drop its message
                if channel not in earliest or at < earliest[channel][0]:
                    earliest[channel] = at, rule
            for channel, (_at, rule) in earliest.items():
                _write_notice(row.alert, rule, channel, Event.OPENED, 0, now)
        for row in news:
            if not row.is_end:
                continue
            # The end goes to the channels that have the beginning, or will have it: by the same
            # rule, or if that was deleted meanwhile by another rule about this alert.
            notices = AlertNotice.objects.filter(alert=row.alert, event=Event.OPENED)
            notices = notices.exclude(message__state=State.DROPPED)
            for notice in notices.select_related("message__rule", "channel"):
                rule_of_end = notice.message.rule
                if rule_of_end is None:
                    pairs = channels_about(rules, row.alert, systems.get(row.alert.pk))
                    rule_of_end = next(
                        (other for other, channel in pairs if channel == notice.channel), None
                    )
                if rule_of_end is not None and rule_of_end.sends_resolved:
                    _write_notice(row.alert, rule_of_end, notice.channel, Event.RESOLVED, 0, now)
        AlertNews.objects.filter(pk__in=[row.pk for row in news]).delete()


def plan_repeats(now: datetime) -> None:
    """Repeat the news of open alerts that nobody has acknowledged."""
    rules = AlertRule.objects.filter(enabled=True, repeat_minutes__gt=0)
    for rule in rules.prefetch_related("systems"):
        # Alerts that the rule reported long enough ago. They are repeated if the rule still covers
        # them and quiet hours do not drop them now.
        pairs = list(
            AlertNotice.objects.filter(
                message__rule=rule,
                alert__open_key__isnull=False,
                alert__acknowledged_at=None,
                channel__enabled=True,
                channel__heartbeat_seconds=0,
                channel__in=rule.channels.all(),
            )
            .exclude(message__state=State.DROPPED)
            .values("alert_id", "channel_id")
            .annotate(last=Max("message__due_at"), number=Max("number"))
            .filter(last__lt=now - timedelta(minutes=rule.repeat_minutes))
            .order_by()
        )
        alerts = Alert.objects.in_bulk({pair["alert_id"] for pair in pairs})
        channels = AlertChannel.objects.in_bulk({pair["channel_id"] for pair in pairs})
        systems, count = systems_of(alerts.values()), 0
        for pair in pairs:
            alert, channel = alerts.get(pair["alert_id"]), channels.get(pair["channel_id"])
            if not alert or not channel or not is_about(rule, alert, systems[alert.pk]):
                continue
            if count < _BATCH and _period(rule, severity_of(alert.kind), now):
                count += 1
                with transaction.atomic():
                    _write_notice(alert, rule, channel, Event.REPEATED, pair["number"] + 1, now)


def _write_notice(
    alert: Alert, rule: AlertRule, channel: AlertChannel, event: str, number: int, now: datetime
) -> None:
    """Write the notice, into a waiting message or a new one."""
    notices = AlertNotice.objects.filter(alert=alert, channel=channel, event=event, number=number)
    if notices.exists():  # another process has written it
        return
    # Channels that have the beginning of an alert always get its end.
    severity, can_drop = severity_of(alert.kind), event != Event.RESOLVED
    period = _period(rule, severity, now, can_drop)
    recent_alerts = Alert.objects.filter(key=alert.key, first_at__gt=now - timedelta(hours=1))
    if period and event != Event.REPEATED and recent_alerts.count() > MAX_BEGINNINGS:
        # The alert begins again and again: its channel gets news twice an hour.
        seconds = now.timestamp() // FLAPPING_SECONDS * FLAPPING_SECONDS + FLAPPING_SECONDS
        half_hour = datetime.fromtimestamp(seconds, UTC)
        period = Period(max(period.earliest, half_hour), max(period.latest, half_hour))
    message = None
    if period is not None:
        # Lock the message: nobody sends it before the notice is stored. A message that waits for
        # its next attempt takes all news that may go now; one for the morning delays none.
        rows = AlertMessage.objects.select_for_update().filter(
            rule=rule, channel=channel, kind=AlertMessage.Kind.ALERTS, state=State.WAITING, claim=""
        )
        if period.earliest <= now:
            rows = rows.filter(Q(due_at__lte=period.latest) | Q(attempts__gt=0))
        else:
            rows = rows.filter(due_at__range=period)
        message = rows.order_by("-pk").first()  # full messages are older
        if message is not None and message.notices.count() >= MAX_NOTICES:
            message = None
    if message is None:
        state = State.DROPPED if period is None else State.WAITING
        due_at = period.latest if period else now
        message = AlertMessage.objects.create(
            rule=rule, channel=channel, state=state, created_at=now, due_at=due_at,
            give_up_at=due_at + AlertMessage.GIVE_UP,
        )  # fmt: skip
    elif period:
        # The message gets a day of tries from this news on. It also gets an attempt soon, because
        # the channel may work again, unless the news is a repeat.
        give_up_at = message.give_up_at or message.created_at + message.GIVE_UP
        message.give_up_at = max(give_up_at, now + message.GIVE_UP)
        if event != Event.REPEATED and message.due_at > period.latest:
            message.due_at = period.latest
            # The pause after this attempt must not be longer than the pause that it cuts short.
            message.attempts = max(1, message.attempts - 1)
        message.save(update_fields=["give_up_at", "due_at", "attempts"])
    sql.insert_or_keep(
        AlertNotice._meta.db_table,
        ("message_id", "channel_id", "alert_id", "event", "number"),
        [(message.pk, channel.pk, alert.pk, str(event), number)],
    )


def delete_old(before: datetime) -> None:
    """Delete messages sent before this time, unless one of their alerts is still open; at most one
    batch."""
    open_messages = AlertNotice.objects.filter(alert__open_key__isnull=False)
    rows = AlertMessage.objects.filter(created_at__lt=before).exclude(state=State.WAITING)
    rows = rows.exclude(pk__in=open_messages.values("message_id"))
    ids = list(rows.values_list("pk", flat=True)[:_BATCH])
    AlertMessage.objects.filter(pk__in=ids).delete()


def _period(
    rule: AlertRule, severity: Severity, now: datetime, can_drop: bool = True
) -> Period | None:
    """The period for news of this severity; None if the news is dropped. Without `can_drop` it
    waits for the end of quiet hours that would drop it."""
    window = timedelta(seconds=rule.group_seconds)
    begins, ends = rule.quiet_from, rule.quiet_until
    if begins is None or ends is None:
        return Period(now, now + window)
    local_now = now.astimezone(ZoneInfo(rule.time_zone))
    local_time = local_now.time()
    if begins > ends:  # over midnight
        is_quiet = local_time >= begins or local_time < ends
    else:
        is_quiet = begins <= local_time < ends
    if not is_quiet or severity.rank >= Severity(rule.quiet_passes_from).rank:
        return Period(now, now + window)
    day = local_now.date() + timedelta(days=1 if local_time >= ends else 0)
    quiet_until = datetime.combine(day, ends, tzinfo=local_now.tzinfo)
    drops_below = rule.quiet_drops_below if can_drop else ""
    if drops_below and severity.rank < Severity(drops_below).rank:
        return None
    return Period(quiet_until, max(quiet_until, now + window))
