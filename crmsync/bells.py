"""Who is woken by new work: a handler by orders in the queue of a CRM."""

from __future__ import annotations

from msgplatform.core.daemons.bell import Bell

HANDLER = Bell("sync_handler")
