"""Prometheus' own promtool judges the rules, and what `/metrics` says."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from msgplatform.env import BASE_DIR
from scripts.reference.metrics import read_rules
from tests.support import everything
from tests.support.api_server import Server

FOLDER = BASE_DIR / "deploy/prometheus"
RULES, EXPECTED = FOLDER / "rules.yml", FOLDER / "rules_test.yml"
TOKEN = "a token for Prometheus"
ALERTS = [rule["alert"] for rule in read_rules(RULES) if "alert" in rule]


def promtool(*arguments: str | Path, given: str = "") -> subprocess.CompletedProcess[str]:
    program = shutil.which("promtool")
    assert program, "promtool is not installed: scripts/packages.sh"
    return subprocess.run(
        [program, *map(str, arguments)], input=given, capture_output=True, text=True, check=False
    )


def test_the_example_can_be_used(tmp_path: Path) -> None:
    """The configuration, and the rules that it names."""
    for name in ("prometheus.yml", "rules.yml"):
        shutil.copy(FOLDER / name, tmp_path)
    (tmp_path / "metrics_token").write_text(TOKEN)
    done = promtool("check", "config", tmp_path / "prometheus.yml")
    assert done.returncode == 0, done.stderr
    assert f"{len(read_rules(RULES))} rules found" in done.stdout


def test_alerts_come_when_they_should() -> None:
    done = promtool("test", "rules", EXPECTED)
    assert done.returncode == 0, done.stdout + done.stderr


def expected_to_come() -> set[str]:
    return {
        test["alertname"]
        for group in yaml.safe_load(EXPECTED.read_text(encoding="utf-8"))["tests"]
        for test in group["alert_rule_test"]
        if test.get("exp_alerts")
    }


def test_most_alerts_are_seen_to_come() -> None:
    assert expected_to_come() <= set(ALERTS)
    assert len(expected_to_come()) > len(ALERTS) / 2


def test_that_an_alert_does_not_come_is_noticed(tmp_path: Path) -> None:
    """Of each alert. Otherwise promtool has compared nothing."""
    rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    for group in rules["groups"]:
        for rule in group["rules"]:
            if "alert" in rule:
                rule["expr"] = "vector(0) == 1"
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rules), encoding="utf-8")
    shutil.copy(EXPECTED, tmp_path)
    done = promtool("test", "rules", tmp_path / EXPECTED.name)
    assert done.returncode == 1
    told = re.findall(r"alertname: (\w+)", done.stdout + done.stderr)
    assert set(told) == expected_to_come()


@pytest.fixture
def scraped(tmp_path: Path, work_redis: object, sms_redis: object) -> Iterator[str]:
    """What a web server of the platform answers a Prometheus."""
    everything.make(tmp_path)
    server = Server(
        tmp_path / "log",
        "tests.support.platform_asgi:application",
        {"METRICS_TOKEN": TOKEN},
    )
    try:
        server.request("GET", "/console/")
        status, body = server.request("GET", "/metrics", key=TOKEN)
        assert status == 200
        yield body.decode()
    finally:
        server.stop()


@pytest.mark.django_db(transaction=True)
def test_what_is_scraped_keeps_to_the_conventions(scraped: str) -> None:
    """Names, units, types and help texts, of every flow's metrics."""
    families = re.findall(r"^# TYPE msgplatform_([a-z]+)", scraped, re.MULTILINE)
    assert {"web", "notify", "sms", "feed", "crmsync"} <= set(families)
    done = promtool("check", "metrics", given=scraped)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
