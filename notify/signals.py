"""Who is woken by new work: a maker by accepted messages, a sender by orders on a queue, and by a
consumer or subscription that somebody has changed."""

from __future__ import annotations

from msgplatform.core.daemons.wake_signal import WakeSignal

MAKER = WakeSignal("maker")
SENDER = WakeSignal("sender")
SUBSCRIPTIONS = WakeSignal("subscriptions")
