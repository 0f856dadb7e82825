"""`docs/metrics.md`: every metric as the code declares it, with the alerts that use it."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from django.conf import settings

from msgplatform.core import flows
from msgplatform.core.flows.metric import PREFIX, Metric
from msgplatform.core.tracing import figures
from msgplatform.core.web import request_counts
from msgplatform.monitor import metrics

_HEAD = """\
# Metrics

For whoever watches the platform with Prometheus. `/metrics` answers in its text format, for the
whole platform: any of its web servers reads what stands here from the database and from Redis, so
scrape one address of it. `METRICS_TOKEN` says who may. [alerts.md](alerts.md#prometheus)
says how to set up Prometheus and Grafana, and what to do about each alert.

A counter begins anew when the work Redis was emptied, as Prometheus expects of a restart. A metric
that cannot be read at present has no sample: no 0. Written by `make docs` from the code.

The Agent beside a business system has metrics of its own: [agent.md](agent.md#5-watch-it).
"""
_COLUMNS = "| metric | type | labels | meaning | alerts |\n|---|---|---|---|---|"
_SERIES = ("_bucket", "_sum", "_count")
Rules = list[dict[str, Any]]
RULES = settings.BASE_DIR / "deploy" / "prometheus" / "rules.yml"


def by_owner() -> Iterator[tuple[str, Iterable[Metric]]]:
    """(owner's title, its metrics): the platform, traces, web servers, then each flow."""
    yield "Platform", metrics.METRICS
    yield "Traces", figures.METRICS
    yield "Web servers", request_counts.METRICS
    for flow in flows.all():
        yield str(flow.title), flow.health.declared_metrics


def page() -> str:
    """The whole page."""
    alerts = alerts_by_metric(read_rules(RULES))
    return "\n".join([_HEAD, *(_section(*group, alerts) for group in by_owner())])


def _section(
    title: str, metrics_of_group: Iterable[Metric], alerts: Mapping[str, list[str]]
) -> str:
    lines = [f"## {title}", "", _COLUMNS]
    for metric in metrics_of_group:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        used = ", ".join(alerts.get(metric.full_name, []))
        cells = f"`{metric.full_name}`", metric.kind, labels, metric.help, used
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def read_rules(rules_file: Path) -> Rules:
    """All rules of all groups."""
    groups = yaml.safe_load(rules_file.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts_by_metric(rules: Rules) -> dict[str, list[str]]:
    """The full name of a metric → the alerts that use it, also by way of a recording rule."""
    expressions = {rule["record"]: rule["expr"] for rule in rules if "record" in rule}
    alerts: dict[str, list[str]] = {}
    for rule in rules:
        if "alert" not in rule:
            continue
        expression = rule["expr"]
        for name, of_name in expressions.items():
            expression = expression.replace(name, of_name)
        for name in sorted(set(metrics_in(expression))):
            alerts.setdefault(name, []).append(rule["alert"])
    return alerts


def metrics_in(expression: str) -> Iterator[str]:
    """The full names of the platform's metrics that a PromQL expression reads."""
    metrics_by_name = {metric.full_name: metric for _, group in by_owner() for metric in group}
    # {__name__=~"…"} reads all whose names match.
    for pattern in re.findall(r'__name__=~"([^"]+)"', expression):
        yield from (name for name in metrics_by_name if re.fullmatch(pattern, name))
    for name in re.findall(rf"(?<![\w:]){PREFIX}\w+(?![\w:])", expression):
        whole = next((name.removesuffix(end) for end in _SERIES if name.endswith(end)), name)
        is_histogram = whole in metrics_by_name and metrics_by_name[whole].kind == "histogram"
        yield whole if is_histogram else name
