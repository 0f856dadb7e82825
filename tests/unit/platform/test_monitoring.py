"""The page of metrics, the rules of Prometheus and the dashboard agree with the code."""

import re
from typing import Any

import pytest

from msgplatform.env import BASE_DIR
from scripts.reference import metrics as metrics_page
from tests.unit.platform.monitoring_files import (
    DECLARED,
    RULES,
    dashboard_expressions,
    rule_expressions,
)

RECORDED = {rule["record"] for rule in metrics_page.read_rules(RULES) if "record" in rule}
# Labels that Prometheus itself adds, that belong to histograms, or that each sample of a cell has.
_OF_PROMETHEUS = {"job", "instance", "le", "cell"}


@pytest.mark.parametrize("expression", [*rule_expressions(), *dashboard_expressions()])
def test_every_metric_that_is_asked_for_is_declared(expression: str) -> None:
    names = set(metrics_page.metrics_in(expression))
    assert names <= DECLARED.keys()
    recorded = set(re.findall(r"[\w:]*msgplatform_\w+:\w+", expression))
    assert recorded <= RECORDED
    assert names or recorded or "up{" in expression
    labels = {label for name in names for label in DECLARED[name].labels} | _OF_PROMETHEUS
    for name in recorded:
        labels |= set(name.partition(":")[0].split("_")) & {"route", "outcome"}
    for inside in re.findall(r"\{(?!__name__)([^}]*)\}", expression):
        assert {part.split("=")[0].strip("!~ ") for part in inside.split(",")} <= labels
    for inside in re.findall(r"(?:by|on) \(([^)]*)\)", expression):
        assert {label.strip() for label in inside.split(",")} <= labels


def test_every_alert_says_what_and_where_to_read_on() -> None:
    sections = {
        f"docs/{page}#" + re.sub(r"[^\w -]", "", title).lower().replace(" ", "-")
        for page in ("alerts.md", "runbook.md")
        for title in re.findall(
            r"^#+ (.*)$", (BASE_DIR / "docs" / page).read_text(encoding="utf-8"), re.MULTILINE
        )
    }
    alerts = [rule for rule in metrics_page.read_rules(RULES) if "alert" in rule]
    assert len({rule["alert"] for rule in alerts}) == len(alerts) > 20
    for rule in alerts:
        assert rule["annotations"]["runbook"] in sections, rule["alert"]
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in ("critical", "warning")
        shown = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        known = {
            label for name in metrics_page.metrics_in(rule["expr"])
            for label in DECLARED[name].labels
        }  # fmt: skip
        known |= set(re.findall(r'"(\w+)", "\$1"', rule["expr"]))  # of label_replace
        assert shown <= known | {"instance", "route", "__name__"}, rule["alert"]


def test_alerts_are_found_through_what_is_recorded() -> None:
    found = metrics_page.alerts_by_metric(metrics_page.read_rules(RULES))
    assert "MsgplatformWebErrors" in found["msgplatform_web_requests_total"]
    assert "MsgplatformArchiveOverdue" in found["msgplatform_sms_archive_overdue_seconds"]


def test_the_files_are_not_empty() -> None:
    assert sum(map(len, dashboard_expressions())) > 1000
    groups: Any = metrics_page.read_rules(RULES)
    assert all({"expr"} < rule.keys() for rule in groups)
