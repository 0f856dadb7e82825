"""What starts the platform without `up` starts every program."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from msgplatform.core import flows

DEPLOY = Path(__file__).parents[3] / "deploy"
PROGRAMS = {daemon.command for flow in flows.all() for daemon in flow.daemons}
PROGRAMS |= {flows.BULK.command}


def by_units() -> set[str]:
    """The units that the template's first line starts."""
    first = (DEPLOY / "systemd" / "msgplatform@.service").read_text().splitlines()[0]
    return {f"run_{word.partition('@')[2]}" for word in first.split() if "@" in word}


def by_compose() -> set[str]:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    commands = [" ".join(map(str, each.get("command", []))) for each in services.values()]
    return {command.split("manage.py ")[1] for command in commands if "manage.py run_" in command}


@pytest.mark.parametrize(("started", "others"), [(by_units, set()), (by_compose, {"run_agent"})])
def test_every_program_is_started(started: object, others: set[str]) -> None:
    assert callable(started)
    assert started() == PROGRAMS | others
