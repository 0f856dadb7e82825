"""The gateway simulator as a command."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.management.commands.run_smg_simulator import Command
from gateway.sgip import State
from gateway.simulator.program import PORT, behaviour
from gateway.simulator.smg import BEHAVIOURS, ReportTime
from scripts.reference import configuration

ROOT = Path(__file__).resolve().parents[3]


def test_it_listens_beside_the_platforms_receiver() -> None:
    """Both started without options on one machine, as a newcomer does."""
    variables = {found.name: found for found in configuration.read(ROOT / "gateway/settings.py")}
    given = Command().create_parser("manage.py", "run_smg_simulator").parse_args([])
    assert given.port == PORT
    assert variables["SMS_RECEIVER_PORT"].default.strip("`") != str(PORT)


def test_a_state_is_a_name_or_the_number_of_the_wire() -> None:
    failing = replace(BEHAVIOURS["happy"], state=State.FAILED, error_code=25)
    for state in ("failed", "FAILED", "2"):
        assert behaviour("happy", [f"state={state}", "error_code=25"]) == failing
    assert behaviour("happy", ["reports=never"]).reports is ReportTime.NEVER
    for state in ("3", "lost"):
        with pytest.raises(ValueError, match="known: delivered, waiting, failed"):
            behaviour("happy", [f"state={state}"])


def test_the_page_about_it_names_its_port() -> None:
    page = (ROOT / "docs" / "smg-simulator.md").read_text(encoding="utf-8")
    assert f"host 127.0.0.1, port {PORT}," in page
    assert f"`--port` ({PORT};" in page
