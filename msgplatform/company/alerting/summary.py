"""The weekly summary: what each business system handed over, and what became of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from django.db import transaction
from django.utils import translation
from django.utils.translation import gettext as _

from msgplatform.company.alerting import texts
from msgplatform.company.alerting.models import AlertChannel, AlertMessage
from msgplatform.core import flows
from msgplatform.core.flows.activity import SYSTEM, Activity, Counts
from msgplatform.core.flows.contract import Flow
from msgplatform.models import Alert
from msgplatform.monitor.statistics.groups import rank_groups, sums, whole
from msgplatform.monitor.statistics.points import CounterQuery

_HOUR = time(8, 0)
WEEK = timedelta(days=7)
_MAX_SYSTEMS = 20  # of a flow: those with most failures; the summary has the number of the others


def plan(channels: Iterable[AlertChannel], now: datetime) -> None:
    """Write the summaries whose time has come; the outbox sends them."""
    for channel in channels:
        if not channel.enabled or channel.is_heartbeat or channel.summary_weekday is None:
            continue
        next_at = next_time(channel, now)
        stored = channel.next_summary_at
        if stored == next_at:
            continue
        row = AlertChannel.objects.filter(pk=channel.pk, next_summary_at=stored)
        with transaction.atomic():
            # Without a stored time, or with one of another day, the channel was just set up.
            if row.update(next_summary_at=next_at) and stored and stored <= now:
                title, text = write(channel, now)
                AlertMessage.objects.create(
                    channel=channel, kind=AlertMessage.Kind.SUMMARY, created_at=now, due_at=now,
                    title=title, text=text,
                )  # fmt: skip


def next_time(channel: AlertChannel, now: datetime) -> datetime:
    """The next time for a summary after `now`: 8 in the morning, where the channel is."""
    zone = ZoneInfo(channel.time_zone)
    local = now.astimezone(zone)
    days = ((channel.summary_weekday or 1) - local.isoweekday()) % 7
    moment = datetime.combine(local.date() + timedelta(days=days), _HOUR, tzinfo=zone)
    if moment <= local:
        moment = datetime.combine(local.date() + timedelta(days=days + 7), _HOUR, tzinfo=zone)
    return moment


def write(channel: AlertChannel, now: datetime) -> tuple[str, str]:
    """Title and text of the week that ends now: a paragraph for each flow, one for alerts."""
    with translation.override(channel.language):
        zone = ZoneInfo(channel.time_zone)
        days = [moment.astimezone(zone).strftime("%Y-%m-%d") for moment in (now - WEEK, now)]
        title = texts.prefix() + _("the week from %(since)s to %(until)s") % {
            "since": days[0], "until": days[1],
        }  # fmt: skip
        paragraphs = [
            "\n".join(_flow(flow, flow.health.activity, now))
            for flow in flows.all()
            if flow.health.activity
        ]
        counts = {
            "opened": Alert.objects.filter(first_at__gte=now - WEEK).count(),
            "open": Alert.objects.filter(open_key__isnull=False).count(),
        }
        sentence = _("Alerts: %(opened)d opened in this week, %(open)d open now.") % counts
        return title, "\n\n".join([*paragraphs, sentence])


def _flow(flow: Flow, activity: Activity, now: datetime) -> Iterator[str]:
    totals = sums(CounterQuery(activity, "hour", now - WEEK, now))
    yield f"{flow.title}: {_figures(activity, whole(totals))}"
    systems = next((part for part in activity.dimensions if part.name == SYSTEM), None)
    lines = rank_groups(activity, systems, totals) if systems else []
    busy_lines = [line for line in lines if any(line.counts.values())]
    for line in busy_lines[:_MAX_SYSTEMS]:
        yield f"- {line.group.title}: {_figures(activity, line.counts)}"
    if len(busy_lines) > _MAX_SYSTEMS:
        yield _("- and %d more systems") % (len(busy_lines) - _MAX_SYSTEMS)


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
