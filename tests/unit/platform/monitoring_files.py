"""Rules and dashboard as they are deployed, and the metrics that the platform declares."""

import json
from collections.abc import Iterator

from msgplatform.env import BASE_DIR
from scripts.reference import metrics as metrics_page

RULES = BASE_DIR / "deploy" / "prometheus" / "rules.yml"


DASHBOARD = BASE_DIR / "deploy" / "grafana" / "msgplatform.json"


DECLARED = {metric.full_name: metric for _, group in metrics_page.by_owner() for metric in group}


def dashboard_expressions() -> Iterator[str]:
    """What the panels ask."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"]


def rule_expressions() -> list[str]:
    return [rule["expr"] for rule in metrics_page.read_rules(RULES)]
