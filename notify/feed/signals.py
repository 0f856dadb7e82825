"""Bells that wake programs when there is work: posts wake a dispatcher."""

from __future__ import annotations

from msgplatform.core.daemons.wake_signal import WakeSignal

DISPATCHER = WakeSignal("feed_dispatcher")
