"""Who is woken by new work: a maker by accepted messages, a sender by orders on a queue."""

from __future__ import annotations

from msgplatform.core.daemons.bell import Bell

MAKER = Bell("maker")
SENDER = Bell("sender")
