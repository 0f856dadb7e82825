"""Sends alerts, weekly summaries and heartbeats; a program's watch takes its turns."""

from collections.abc import Iterable, Sequence
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone, translation
from django.utils.translation import gettext as _

from msgplatform.company.alerting import outbox, planning, texts
from msgplatform.company.alerting.models import AlertChannel, AlertMessage
from msgplatform.company.alerting.outbox import Child, Outbox, Outcome, is_failing, note_outcome
from msgplatform.core import flows, outbound
from msgplatform.core.daemons.timer import Every
from msgplatform.core.flows.activity import SYSTEM, Activity, Counts
from msgplatform.models import Alert, DayCounter
from msgplatform.monitor.statistics.groups import rank_groups, sums, whole
from msgplatform.monitor.statistics.points import CounterQuery, Step, time_of

WEEK = timedelta(days=7)
_SUMMARY_TIME = time(8, 0)  # in the channel's zone
_MAX_SYSTEMS = 20  # systems of a flow with most failures; the summary has the number of the others
_CLOCK_TOLERANCE = timedelta(seconds=60)  # difference between clocks of machines
# A failed call is repeated after this time: a dead man's switch may wait little longer than the
# interval between two calls.
_RETRY = timedelta(seconds=30)


def plan_summaries(channels: Iterable[AlertChannel], now: datetime) -> None:
    """Write the summaries whose time has come; the outbox sends them."""
    for channel in channels:
        if not channel.enabled or channel.is_heartbeat or channel.summary_weekday is None:
            continue
        next_at = next_summary_time(channel, now)
        stored_at = channel.next_summary_at
        # A week later: the clock went back after the summary of `next_at` was written.
        if stored_at in (next_at, next_summary_time(channel, next_at)):
            continue
        rows = AlertChannel.objects.filter(pk=channel.pk, next_summary_at=stored_at)
        with transaction.atomic():
            # Without a stored time, or with a time of another day, the channel was just set up.
            if rows.update(next_summary_at=next_at) and stored_at and stored_at <= now:
                title, text = write_summary(channel, now)
                AlertMessage.objects.create(
                    channel=channel, kind=AlertMessage.Kind.SUMMARY, created_at=now, due_at=now,
                    title=title, text=text,
                )  # fmt: skip


def next_summary_time(channel: AlertChannel, now: datetime) -> datetime:
    """The next time for a summary after `now`: 8 in the morning in the channel's zone."""
    zone = ZoneInfo(channel.time_zone)
    local_now = now.astimezone(zone)
    days = ((channel.summary_weekday or 1) - local_now.isoweekday()) % 7
    next_time = datetime.combine(
        local_now.date() + timedelta(days=days), _SUMMARY_TIME, tzinfo=zone
    )
    if next_time <= local_now:
        next_time += WEEK
    return next_time


def write_summary(channel: AlertChannel, now: datetime) -> tuple[str, str]:
    """Title and text for the week that ends now: a paragraph for each flow, and one for alerts."""
    step: Step = "hour"
    since, until = now - WEEK, now
    zone = ZoneInfo(channel.time_zone)
    first_day, last_day = since.astimezone(zone).date(), until.astimezone(zone).date()
    if timedelta(days=settings.MINUTE_COUNTER_DAYS) <= WEEK:
        # The first hours may be deleted already: take the seven whole days before today.
        step, today = "day", DayCounter.of(now)
        first_day, last_day = today - WEEK, today - timedelta(days=1)
        since, until = time_of(first_day), time_of(today)
    with translation.override(channel.language):
        title = texts.prefix() + _("the week from %(since)s to %(until)s") % {
            "since": first_day, "until": last_day,
        }  # fmt: skip
        paragraphs = []
        for flow in flows.all():
            if (activity := flow.health.activity) is None:
                continue
            totals = sums(CounterQuery(activity, step, since, until))
            lines = [f"{flow.title}: {_figures(activity, whole(totals))}"]
            by_system = next((part for part in activity.dimensions if part.name == SYSTEM), None)
            systems = rank_groups(activity, by_system, totals) if by_system else []
            busy_systems = [system for system in systems if any(system.counts.values())]
            lines += [
                f"- {system.group.title}: {_figures(activity, system.counts)}"
                for system in busy_systems[:_MAX_SYSTEMS]
            ]
            if len(busy_systems) > _MAX_SYSTEMS:
                lines.append(_("- and %d more systems") % (len(busy_systems) - _MAX_SYSTEMS))
            paragraphs.append("\n".join(lines))
        counts = {
            "opened": Alert.objects.filter(first_at__gte=since, first_at__lt=until).count(),
            "open": Alert.objects.filter(open_key__isnull=False).count(),
        }
        sentence = _("Alerts: %(opened)d opened in this week, %(open)d open now.") % counts
        return title, "\n\n".join([*paragraphs, sentence])


def _figures(activity: Activity, counts: Counts) -> str:
    parts = [
        f"{measure.title} {measure.of(counts):,}"
        for measure in activity.stored_measures
        if measure.tone in ("accepted", "good", "lost")
    ]
    for figure in activity.figures:
        if figure.name.endswith("p95") and (seconds := figure.of(counts)) is not None:
            digits = f"{seconds:.3g}" if seconds < 1000 else f"{seconds:,.0f}"
            parts.append(f"{figure.title} {digits} s")
    return ", ".join(parts)


class Heartbeats:
    """The calls that this process makes."""

    def __init__(self) -> None:
        self.children: dict[int, Child] = {}  # by channel

    def collect(self, now: datetime) -> None:
        """Store the outcomes of calls that have ended."""
        for channel_id, call in list(self.children.items()):
            if (outcome := call.poll()) is not None:
                _store_call(channel_id, outcome, now)
                del self.children[channel_id]

    def start(self, channels: Sequence[AlertChannel], now: datetime) -> None:
        """Call the due addresses, if alerts can reach people: a channel for messages works, or
        there is none. (The call itself shows that the database takes writes and that a program
        runs.)"""
        message_channels = [row for row in channels if row.enabled and not row.is_heartbeat]
        if message_channels and all(map(is_failing, message_channels)):
            return
        for channel in channels:
            if not channel.is_heartbeat or not channel.enabled or channel.pk in self.children:
                continue
            next_call_at = now + timedelta(seconds=channel.heartbeat_seconds)
            # A later stored time comes from a longer interval, or from a clock that was ahead.
            max_next_at = next_call_at + _CLOCK_TOLERANCE
            next_at = channel.next_heartbeat_at
            is_due = next_at is None or next_at <= now or next_at > max_next_at
            rows = AlertChannel.objects.filter(
                Q(next_heartbeat_at=None)
                | Q(next_heartbeat_at__lte=now)
                | Q(next_heartbeat_at__gt=max_next_at),
                pk=channel.pk,
            )
            if not is_due or not rows.update(next_heartbeat_at=next_call_at):
                continue  # another process calls it
            try:
                self.children[channel.pk] = Child("call", channel.url, seconds=outbox.CALL_SECONDS)
            except Exception as error:  # noqa: BLE001 - no process, or an unreadable address
                _store_call(channel.pk, Outcome(False, str(error)[:500]), now)


def _store_call(channel_id: int, outcome: Outcome, now: datetime) -> None:
    """Store the outcome of a call. A failed call is repeated soon."""
    note_outcome(channel_id, outcome, now)
    if not outcome.is_ok:
        rows = AlertChannel.objects.filter(pk=channel_id, next_heartbeat_at__gt=now + _RETRY)
        rows.update(next_heartbeat_at=now + _RETRY)


class Sender:
    """Plans and sends. One per process; its work may be done by several processes at once."""

    def __init__(self) -> None:
        self._outbox, self._heartbeats = Outbox(), Heartbeats()
        self._cleaning = Every(3600.0)

    def turn(self, may_start: bool) -> None:
        """Do the due work, without waiting for a send. Without `may_start` only store the outcomes
        of sends that this process has started."""
        now = timezone.now()
        self._outbox.collect(now)
        self._heartbeats.collect(now)
        if not may_start:
            return
        planning.plan(now)
        channels = list(AlertChannel.objects.all())
        outbox.report_failing(channels)  # even without channels: the last one may have been deleted
        if not channels:
            return
        planning.plan_repeats(now)
        if not outbound.is_off():
            self._heartbeats.start(channels, now)
            self._outbox.start(now)
            # After these, so that no alert waits for counters that cannot be read.
            plan_summaries(channels, now)
        if self._cleaning.take():
            planning.delete_old(now - AlertMessage.KEEP)

    @property
    def is_idle(self) -> bool:
        """True if no send of this process is under way."""
        return not (self._outbox.children or self._heartbeats.children)
