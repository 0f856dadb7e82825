"""Several machines on one database: every program twice, and one set is lost at once."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.harness.mariadb import MariaDb
from tests.cluster import LEASE_SECONDS, ROOT
from tests.flows.traffic import cast
from tests.scale import every_flow
from tests.scale.cells import Load
from tests.scale.conftest import Figures
from tests.scale.machines import PROGRAMS, TwoMachines

UNITS = ROOT / "deploy" / "systemd"
RATE = 25.0
CALM_SECONDS = 10.0


@pytest.fixture
def machines(mariadb: MariaDb) -> Iterator[TwoMachines]:
    # Short, because a socket's path may have only 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="mp-two-"))
    running = TwoMachines(folder, mariadb.create(folder.name.replace("-", "_")), every_flow.SMGS)
    running.environment |= {
        **every_flow.SETTINGS,
        "NOTIFY_LEASE_SECONDS": str(LEASE_SECONDS),
        "NOTIFY_TIMEOUT_SECONDS": "4",
    }
    with running:
        yield running
    shutil.rmtree(folder, ignore_errors=True)


def test_one_of_two_machines_is_lost(machines: TwoMachines, run: int, figures: Figures) -> None:
    systems = {"orders": ["one"], "stock": ["two"]}
    with cast(machines, {"one": [], "two": []}, systems) as (keys, sinks):
        first = {"orders": keys["orders"]}
        second = {"stock": keys["stock"]}
        loads = (
            Load(machines.web_ports["a"], first, RATE),
            Load(machines.web_ports["b"], second, RATE),
        )
        with loads[0], loads[1]:
            time.sleep(CALM_SECONDS)
            # What a balancer does when a machine does not answer.
            loads[0].port = machines.web_ports["b"]
            at = loads[0].now()
            machines.kill_machine("a")
            before = loads[0].books["orders"].ids | loads[1].books["stock"].ids
            struck_at = time.monotonic()
            machines.wait_until(
                lambda: before <= sinks["one"].ids() | sinks["two"].ids(), "what was accepted"
            )
            seconds = time.monotonic() - struck_at
            time.sleep(CALM_SECONDS)
        books = {"one": loads[0].books["orders"], "two": loads[1].books["stock"]}
        for sink, book in books.items():
            machines.wait_until(
                lambda b=book, s=sink: b.ids <= sinks[s].ids(),
                f"all of {sink}",  # type: ignore[misc]
            )
        gap = books["one"].waits_between(at - 1, at + 10)[-1]
        twice = sum(len(sink.lines()) - len(sink.ids()) for sink in sinks.values())
        figures.add(
            f"run {run}: {len(PROGRAMS)} programs of one machine killed:"
            f" {len(books['one'].ids)} and {len(books['two'].ids)} accepted, 0 lost, {twice}"
            f" delivered twice, a publisher waited {gap:.1f} s at most, what the lost machine held"
            f" arrived after {seconds:.1f} s, load average {os.getloadavg()[0]:.1f}"
        )
        assert all(len(ids) == 1 for book in books.values() for ids in book.ids_by_key.values())
        # A lease, and the time in which a busy machine finds it over and delivers.
        assert seconds < LEASE_SECONDS + 20


def test_the_other_flows_when_a_machine_is_lost(
    machines: TwoMachines, run: int, figures: Figures
) -> None:
    """SMS, CRM sync and Feed at work: what the lost machine had in hand, the other one ends."""
    with every_flow.every_flow(machines) as loads:
        time.sleep(CALM_SECONDS)
        waiting = loads.accepted()
        struck_at = time.monotonic()
        machines.kill_machine("a")
        seconds: dict[str, float] = {}

        def has_all() -> bool:
            for flow in waiting.keys() - seconds.keys():
                if waiting[flow]():
                    seconds[flow] = time.monotonic() - struck_at
            return seconds.keys() == waiting.keys()

        with contextlib.suppress(AssertionError):
            machines.wait_until(has_all, "what was accepted before the loss", 60)
        loads.finish()
        loads.check(figures)
        with contextlib.suppress(AssertionError):
            machines.wait_until(has_all, "what was accepted before the loss")
        times = ", ".join(f"{flow} {value:.1f} s" for flow, value in sorted(seconds.items()))
        figures.add(
            f"run {run}: the rest of the lost machine: {times}; load {os.getloadavg()[0]:.1f}"
        )
    assert loads.faults == {}
    assert seconds.keys() == waiting.keys()


# Unit → its name as it is started.
INSTANCES = {
    "msgplatform-web.service": "msgplatform-web.service",
    "msgplatform.target": "msgplatform.target",
    "msgplatform@.service": "msgplatform@maker.service",
    "msgplatform-gateway@.service": "msgplatform-gateway@unicom.service",
    "msgplatform-subscription@.service": "msgplatform-subscription@5.service",
}


def test_systemd_accepts_every_unit(tmp_path: Path) -> None:
    """As deployed, but for the interpreter and the user, which a developer's machine lacks."""
    for unit in UNITS.iterdir():
        text, user = unit.read_text(), "User=msgplatform\n"
        assert user in text or unit.suffix == ".target"
        text = text.replace("/opt/msgplatform/.venv/bin/python", sys.executable).replace(user, "")
        (tmp_path / INSTANCES[unit.name]).write_text(text)
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, tmp_path.iterdir())],
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")
