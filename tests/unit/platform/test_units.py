"""The commands in `deploy/systemd/` are those that there are, with the options that they have."""

import re
import sys
from pathlib import Path

import pytest
from django.core.management import get_commands, load_command_class

from msgplatform.doors.web import __main__ as web

UNITS = Path(__file__).resolve().parents[3] / "deploy" / "systemd"


def started(unit: str) -> list[str]:
    """What comes after manage.py in its ExecStart."""
    (line,) = re.findall(r"^ExecStart=.* manage\.py (.*)$", (UNITS / unit).read_text(), re.M)
    return str(line).split()


@pytest.mark.parametrize(
    ("unit", "instance", "options", "expected"),
    [
        ("msgplatform@.service", "sender", "--processes 4", {"processes": 4}),
        ("msgplatform@.service", "bulk", "", {"processes": 1}),
        ("msgplatform-subscription@.service", "5", "", {"subscription": [5]}),
        ("msgplatform-gateway@.service", "my-gate", "", {"gateway": ["my-gate"]}),
    ],
)
def test_a_unit_starts_a_command_with_its_options(
    unit: str, instance: str, options: str, expected: dict[str, object]
) -> None:
    line = " ".join(started(unit)).replace("%i", instance).replace("$OPTIONS", options)
    name, *arguments = line.split()
    command = load_command_class(get_commands()[name], name)
    given = vars(command.create_parser("manage.py", name).parse_args(arguments))
    assert {key: given[key] for key in expected} == expected


def test_the_web_unit_takes_another_address_and_number_of_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = (UNITS / "msgplatform-web.service").read_text()
    assert "\nEnvironmentFile=-/etc/msgplatform.web.env\n" in text
    (line,) = re.findall(r"^ExecStart=\S+ -m msgplatform\.doors\.web (.*)$", text, re.M)
    (options,) = re.findall(r"OPTIONS=(.+?) in /etc/msgplatform\.web\.env", text)
    served: list[web.Options] = []
    monkeypatch.setattr(web, "serve", served.append)
    monkeypatch.setattr(sys, "argv", ["web", *line.replace("$OPTIONS", options).split()])
    web.main()
    handover = Path("/var/lib/msgplatform/web")
    assert served == [web.Options("10.0.0.41", 8000, 4, handover=handover)]


@pytest.mark.parametrize("unit", sorted(UNITS.glob("*.service")), ids=lambda unit: unit.name)
def test_a_unit_may_write_into_its_state_dir(unit: Path) -> None:
    lines = unit.read_text().splitlines()
    (folder,) = (line.partition("=")[2] for line in lines if line.startswith("StateDirectory="))
    assert f"Environment=STATE_DIR=/var/lib/{folder}" in lines


@pytest.mark.parametrize("unit", sorted(UNITS.glob("*.service")), ids=lambda unit: unit.name)
def test_a_unit_ends_before_the_servers_that_it_writes_to(unit: Path) -> None:
    """systemd stops in the reverse order; without one it stops both at once."""
    servers = set(" ".join(re.findall("^After=(.*)$", unit.read_text(), re.M)).split())
    redis = {f"{name}-server{instance}.service" for name in ("redis", "valkey")
             for instance in ("", "@work", "@sms")}  # fmt: skip
    assert servers >= redis | {"mariadb.service", "mysql.service", "haproxy.service"}
