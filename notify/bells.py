"""Who is woken by new work: a maker by accepted messages, a sender by orders on a queue, and by a
consumer or subscription that somebody has changed."""

from __future__ import annotations

from msgplatform.core.daemons.bell import Bell

MAKER = Bell("maker")
SENDER = Bell("sender")
SUBSCRIPTIONS = Bell("subscriptions")
