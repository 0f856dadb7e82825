"""The work of one look: what the watch of a program does for alerts that go out."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from msgplatform.company.alerting import child, outbox, planning, summary
from msgplatform.company.alerting.heartbeats import Heartbeats
from msgplatform.company.alerting.models import AlertChannel
from msgplatform.company.alerting.outbox import Outbox
from msgplatform.core.daemons.timer import Every

KEEP = timedelta(days=90)  # messages that were sent, in the console


class Sender:
    """Plans and sends. One per process; its work may be done by several processes at once."""

    def __init__(self) -> None:
        self._outbox, self._heartbeats = Outbox(), Heartbeats()
        self._cleaning = Every(3600.0)

    def turn(self, may_start: bool) -> None:
        """Do what is due, without waiting for a send. With `may_start` off only store what became
        of sends that this process has begun."""
        now = timezone.now()
        self._outbox.collect(now)
        self._heartbeats.collect(now)
        if not may_start:
            return
        planning.plan(now)
        channels = list(AlertChannel.objects.all())
        outbox.report_failing(channels)  # also without any: the last one may have been deleted
        if not channels:
            return
        planning.plan_repeats(now)
        if child.may_send():
            summary.plan(channels, now)
            self._heartbeats.start(channels, now)
            self._outbox.start(now)
        if self._cleaning.take():
            planning.delete_old(now - KEEP)

    @property
    def is_idle(self) -> bool:
        """True if no send of this process is under way."""
        return self._outbox.is_idle and self._heartbeats.is_idle
