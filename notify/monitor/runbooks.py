"""Where to act on Notify's alerts; `runbooks.md` beside this file says what to do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgplatform.core.flows.health import Runbook
from notify.monitor.subjects import DELIVER_NOW, SUBSCRIPTION

RUNBOOKS: Mapping[str, Runbook] = {
    "notify.failing": SUBSCRIPTION.runbook(DELIVER_NOW),
    "notify.failures": Runbook("console:failures", model=SUBSCRIPTION.model),
    "notify.disabled": SUBSCRIPTION.runbook(),
    "notify.subscription": SUBSCRIPTION.runbook(),
    "notify.own_process": SUBSCRIPTION.runbook(),
    "notify.poison": Runbook("console:failures", severity="critical"),
    "notify.clock": Runbook("console:overview"),
    "notify.archive": Runbook("console:overview"),
    "notify.retention": Runbook("console:overview"),
    "notify.keys.retention": Runbook("console:overview"),
}
TEXTS = Path(__file__).with_suffix(".md")
