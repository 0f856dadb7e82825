"""Bells that wake programs when there is work: posts wake a dispatcher."""

from __future__ import annotations

from msgplatform.core.daemons.bell import Bell

DISPATCHER = Bell("feed_dispatcher")
