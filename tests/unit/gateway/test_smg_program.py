"""The gateway simulator as a command."""

from __future__ import annotations

from pathlib import Path

from gateway.management.commands.run_smg_simulator import Command
from gateway.simulator.program import PORT
from msgplatform.reference import configuration

ROOT = Path(__file__).resolve().parents[3]


def test_it_listens_beside_the_platforms_receiver() -> None:
    """Both started without options on one machine, as a newcomer does."""
    variables = {found.name: found for found in configuration.read(ROOT / "gateway/settings.py")}
    given = Command().create_parser("manage.py", "run_smg_simulator").parse_args([])
    assert given.port == PORT
    assert variables["SMS_RECEIVER_PORT"].default.strip("`") != str(PORT)


def test_the_page_about_it_names_its_port() -> None:
    page = (ROOT / "docs" / "smg-simulator.md").read_text(encoding="utf-8")
    assert f"host 127.0.0.1, port {PORT}," in page
    assert f"`--port` ({PORT};" in page
