"""Who is woken by new work: a sender by accepted messages, the forwarder by Reports and MOs."""

from __future__ import annotations

from msgplatform.core.daemons.wake_signal import WakeSignal

SENDER = WakeSignal("sms_sender")
FORWARDER = WakeSignal("report_forwarder")
