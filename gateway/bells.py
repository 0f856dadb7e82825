"""Who is woken by new work: a sender by accepted messages, the forwarder by Reports and MOs."""

from __future__ import annotations

from msgplatform.core.daemons.bell import Bell

SENDER = Bell("sms_sender")
FORWARDER = Bell("report_forwarder")
