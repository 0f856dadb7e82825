"""The bells of CRM sync: orders in the queue of a CRM wake the handlers."""

from __future__ import annotations

from msgplatform.core.daemons.bell import Bell

HANDLER = Bell("sync_handler")
