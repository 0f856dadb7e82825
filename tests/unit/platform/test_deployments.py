"""What starts the platform without `up` starts every program."""

from __future__ import annotations

import os
import subprocess
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


def services() -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())[
        "services"
    ]
    return found


def by_compose() -> set[str]:
    commands = [" ".join(map(str, each.get("command", []))) for each in services().values()]
    return {command.split("manage.py ")[1] for command in commands if "manage.py run_" in command}


@pytest.mark.parametrize(("started", "others"), [(by_units, set()), (by_compose, {"run_agent"})])
def test_every_program_is_started(started: object, others: set[str]) -> None:
    assert callable(started)
    assert started() == PROGRAMS | others


def test_no_container_keeps_its_log_for_ever() -> None:
    assert [name for name, each in services().items() if "logging" not in each] == []


@pytest.mark.parametrize(
    ("cold", "expected"),
    [
        ("", ["manage.py migrate"]),
        ("mysql://cold", ["manage.py migrate", "manage.py migrate --database cold"]),
    ],
)
def test_compose_makes_the_tables_of_both_databases(
    tmp_path: Path, cold: str, expected: list[str]
) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    command = [word.replace("$$", "$") for word in services()["migrate"]["command"]]
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "COLD_DATABASE_URL": cold}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == expected
