"""Who is woken by new work: a dispatcher by posts."""

from __future__ import annotations

from msgplatform.core.daemons.bell import Bell

DISPATCHER = Bell("feed_dispatcher")
