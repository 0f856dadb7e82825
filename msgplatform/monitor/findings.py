"""What `doctor` says about alerts and failures."""

from __future__ import annotations

from collections.abc import Iterator

from msgplatform.core import flows
from msgplatform.core.flows import Finding
from msgplatform.models import Alert
from msgplatform.monitor import runbooks

_LISTED = 20  # alerts, and groups of failures for each flow


def open_alerts() -> Iterator[Finding]:
    """Those that nobody has acknowledged first, then by the time at which they were last seen."""
    rows = Alert.objects.filter(open_key__isnull=False).order_by("acknowledged_at", "-last_at")
    found = list(rows[: _LISTED + 1])
    for alert in found[:_LISTED]:
        seen = f" (acknowledged by {alert.acknowledged_by})" if alert.acknowledged_at else ""
        book = runbooks.of(alert.kind)
        yield Finding(
            "warn" if seen else "bad",
            f"alert {alert.kind}: {alert.subject}{seen}",
            f"{book.first if book else alert.text} ({runbooks.anchor(alert.kind)})",
        )
    if len(found) > _LISTED:
        yield Finding("bad", f"more than {_LISTED} alerts are open", "see them in the console")
    if not found:
        yield Finding("ok", "no alert is open")


def failures() -> Iterator[Finding]:
    """What was neither sent again nor acknowledged."""
    is_calm = True
    for flow in flows.all():
        found = flow.health.failures()
        is_calm = is_calm and not found
        for failure in found[:_LISTED]:
            yield Finding(
                "bad",
                f"{flow.title}: {failure.count} failures: {failure.where}: {failure.answer}",
                "send them again or acknowledge them on the console's page Failures",
            )
        if len(found) > _LISTED:
            yield Finding("bad", f"{flow.title}: {len(found) - _LISTED} more groups of failures")
    if is_calm:
        yield Finding("ok", "no failures that nobody has looked at")
