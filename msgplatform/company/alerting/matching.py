"""The rules that are about an alert."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

from django.apps import apps

from msgplatform.company.alerting.models import AlertChannel, AlertRule
from msgplatform.models import Alert
from msgplatform.models.alerts import Severity
from msgplatform.monitor import runbooks
from msgplatform.monitor.watch import CHANNEL

_NUMBER = re.compile(r"\d{1,18}")


def severity(kind: str) -> Severity:
    """The severity of alerts of this kind."""
    book = runbooks.find(kind)
    return Severity(book.severity) if book else Severity.WARNING


def is_of_kinds(kind: str, patterns: Collection[str]) -> bool:
    """True if a pattern equals the kind or its beginning (`sms.*`), or if there are no patterns."""
    name = kind.partition(":")[0]
    return not patterns or any(
        name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1]))
        for pattern in patterns
    )


class Rules:
    """The enabled rules with their systems and channels, read once."""

    def __init__(self) -> None:
        rows = AlertRule.objects.filter(enabled=True)
        self._rows = list(rows.prefetch_related("systems", "channels"))

    def __bool__(self) -> bool:
        return bool(self._rows)

    def about(self, alert: Alert, system: int | None) -> Iterator[tuple[AlertRule, AlertChannel]]:
        """Each rule about this alert with each of its channels. A channel gets no alert about its
        own failure."""
        for rule in self._rows:
            if is_about(rule, alert, system):
                for channel in rule.channels.all():
                    if not channel.is_heartbeat and alert.key != f"{CHANNEL}:{channel.pk}":
                        yield rule, channel


def is_about(rule: AlertRule, alert: Alert, system: int | None) -> bool:
    """True if the rule covers the alert, which is about this business system."""
    if severity(alert.kind).rank < Severity(rule.min_severity).rank:
        return False
    system_ids = {row.pk for row in rule.systems.all()}
    return is_of_kinds(alert.kind, rule.kinds) and (not system_ids or system in system_ids)


def systems(alerts: Iterable[Alert]) -> Mapping[int, int | None]:
    """Alert id → id of the business system that the alert is about. One statement for each model of
    rows that alerts are about."""
    result: dict[int, int | None] = {}
    subjects: dict[str, dict[int, int]] = defaultdict(dict)  # model → alert → id of the row
    for alert in alerts:
        result[alert.pk] = None
        book = runbooks.find(alert.kind)
        subject = alert.key.removeprefix(f"{alert.kind}:")
        if book and book.model and _NUMBER.fullmatch(subject):
            subjects[book.model][alert.pk] = int(subject)
    for label, row_ids in subjects.items():
        if not runbooks.has_system(label):
            continue
        rows = apps.get_model(label)._default_manager.filter(pk__in=set(row_ids.values()))
        owners = dict(rows.values_list("pk", "biz_id"))
        result |= {alert: owners.get(row) for alert, row in row_ids.items()}
    return result
