"""The findings of `doctor` about alerts and failures."""

from collections.abc import Iterator

from msgplatform.core import flows
from msgplatform.core.flows.health import Finding
from msgplatform.models import Alert
from msgplatform.monitor import runbooks

_MAX_LISTED = 20  # alerts; groups of failures of each flow


def open_alerts() -> Iterator[Finding]:
    """The open alerts: unacknowledged alerts first, then the latest seen."""
    rows = Alert.objects.filter(open_key__isnull=False).order_by("acknowledged_at", "-last_at")
    alerts = list(rows[: _MAX_LISTED + 1])
    for alert in alerts[:_MAX_LISTED]:
        note = f" (acknowledged by {alert.acknowledged_by})" if alert.acknowledged_at else ""
        first_step = runbooks.section(alert.kind).first_step
        yield Finding(
            "warn" if note else "bad",
            f"alert {alert.kind}: {alert.subject}{note}",
            f"{first_step or alert.text} ({runbooks.anchor(alert.kind)})",
        )
    if len(alerts) > _MAX_LISTED:
        yield Finding("bad", f"more than {_MAX_LISTED} alerts are open", "see them in the console")
    if not alerts:
        yield Finding("ok", "no alert is open")


def failures() -> Iterator[Finding]:
    """The failures that were neither resent nor acknowledged."""
    has_failures = False
    for flow in flows.all():
        groups = flow.health.failures()
        has_failures = has_failures or bool(groups)
        for failure in groups[:_MAX_LISTED]:
            yield Finding(
                "bad",
                f"{flow.title}: {failure.count} failures: {failure.where}: {failure.answer}",
                "send them again or acknowledge them on the console's page Failures",
            )
        if len(groups) > _MAX_LISTED:
            yield Finding("bad", f"{flow.title}: {len(groups) - _MAX_LISTED} more groups of failures")
    if not has_failures:
        yield Finding("ok", "no failures that nobody has looked at")
