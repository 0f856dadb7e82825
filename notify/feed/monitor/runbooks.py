"""Where to act on Feed's alerts; `runbooks.md` beside this file says what to do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgplatform.core.flows.health import Runbook

RUNBOOKS: Mapping[str, Runbook] = {
    "feed.set_aside": Runbook("console:failures"),
    "feed.late": Runbook("admin:feed_scheduler"),
    "feed.events.retention": Runbook("admin:feed_eventqueue_changelist"),
    "feed.entries.retention": Runbook("console:overview"),
    "feed.keys.retention": Runbook("console:overview"),
}
TEXTS = Path(__file__).with_suffix(".md")
