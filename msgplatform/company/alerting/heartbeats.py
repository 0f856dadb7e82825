"""Addresses that are called while all is well: a dead man's switch, which somebody else's machine
watches, reports the calls that stay away."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db.models import Q

from msgplatform.company.alerting.child import Child, Outcome
from msgplatform.company.alerting.models import AlertChannel
from msgplatform.company.alerting.outbox import is_failing, note_outcome

_CLOCK_TOLERANCE = timedelta(seconds=60)  # between machines
# A switch that waits for little more than the interval goes off after one call that failed.
_RETRY = timedelta(seconds=30)


class Heartbeats:
    """The calls that this process makes."""

    def __init__(self) -> None:
        self._children: dict[int, Child] = {}  # by channel

    @property
    def is_idle(self) -> bool:
        return not self._children

    def collect(self, now: datetime) -> None:
        """Store what became of calls that have ended."""
        for channel, child in list(self._children.items()):
            if (outcome := child.poll()) is not None:
                _store(channel, outcome, now)
                del self._children[channel]

    def start(self, channels: Sequence[AlertChannel], now: datetime) -> None:
        """Call the addresses whose time has come, if all is well."""
        if not is_well(channels):
            return
        for channel in channels:
            if not channel.is_heartbeat or not channel.enabled or channel.pk in self._children:
                continue
            later = now + timedelta(seconds=channel.heartbeat_seconds)
            # The time of a longer interval, or of a clock that was ahead.
            too_late = later + _CLOCK_TOLERANCE
            next_at = channel.next_heartbeat_at
            is_due = next_at is None or next_at <= now or next_at > too_late
            row = AlertChannel.objects.filter(
                Q(next_heartbeat_at=None)
                | Q(next_heartbeat_at__lte=now)
                | Q(next_heartbeat_at__gt=too_late),
                pk=channel.pk,
            )
            if not is_due or not row.update(next_heartbeat_at=later):
                continue  # another process calls it
            try:
                self._children[channel.pk] = Child("call", channel.url, seconds=15)
            except Exception as error:  # noqa: BLE001 - no process, or an unreadable address
                _store(channel.pk, Outcome(False, str(error)[:500]), now)


def _store(channel_id: int, outcome: Outcome, now: datetime) -> None:
    """Store the outcome of a call. A call that failed is made again soon."""
    note_outcome(channel_id, outcome, now)
    if not outcome.is_ok:
        row = AlertChannel.objects.filter(pk=channel_id, next_heartbeat_at__gt=now + _RETRY)
        row.update(next_heartbeat_at=now + _RETRY)


def is_well(channels: Sequence[AlertChannel]) -> bool:
    """True if alerts can reach people: a channel for messages works, or there is none. (That the
    database takes writes, and a program looks after the platform, shows in the call itself.)"""
    places = [row for row in channels if row.enabled and not row.is_heartbeat]
    return not places or any(not is_failing(row) for row in places)
