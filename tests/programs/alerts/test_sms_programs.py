"""A program of SMS that does not run has an alert, whichever it is, and needs no other program of
SMS for it."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import WEB
from tests.flows.sms_cluster import SmsCluster

PROGRAMS = ("run_data_pump", "run_report_forwarder", "run_sms_receiver", "run_sms_sender")
OTHER = "run_marker"  # a program of Notify, the only one that looks in the end
_GATEWAY = """
from tests.support.sms_rows import gateway
gateway("city", port={port}, login_name="sp", login_password="secret")
"""
_OPEN = """
import json
from msgplatform.models import Alert
rows = Alert.objects.filter(open_key__isnull=False)
print(json.dumps([f"{row.kind}: {row.subject}. {row.text}" for row in rows]))
"""


class SmsPrograms(SmsCluster):
    """Programs in a hurry (`hasty_program.py`), and a gateway that answers."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, f"sqlite:///{folder / 'platform.db'}", {"city": []}, (OTHER,))
        self.environment |= {"ALERT_SILENT_SECONDS": "20"}

    def _ready(self) -> bool:
        return True

    def _command(self, name: str) -> list[str]:
        if name in (*PROGRAMS, OTHER):
            return [sys.executable, "-m", "tests.programs.hasty_program", "alerts", name]
        assert name != WEB
        return super()._command(name)

    def open_alerts(self) -> list[str]:
        alerts: Any = self.script(_OPEN)
        return list(alerts)

    def wait_for_alerts(self, *parts: str) -> None:
        """Wait until these are the open alerts: each part stands in one of them."""

        def is_so() -> bool:
            alerts = self.open_alerts()
            said = all(any(part in alert for alert in alerts) for part in parts)
            return said and len(alerts) == len(parts)

        self.wait_until(is_so, f"the alerts {parts}; the last ones: {self.open_alerts()}")


@pytest.fixture
def running() -> Iterator[SmsPrograms]:
    folder = Path(tempfile.mkdtemp(prefix="mp-sms-"))  # short: a socket's path is bounded
    with SmsPrograms(folder) as running:
        yield running
    shutil.rmtree(folder, ignore_errors=True)


def test_each_program_that_does_not_run_has_an_alert(running: SmsPrograms) -> None:
    outage = "sms.gateway: No connection to the gateway city"
    running.console.run(_GATEWAY.format(port=running.ports["city"]))
    running.wait_for_alerts(outage)  # nobody has started a sender
    running.wait_for_alerts("no sender serves it")

    running.start("city")
    for name in PROGRAMS:
        running.start(name)
    running.wait_until(lambda: running.redis.hlen("platform:seen") == 5, "all programs")
    running.wait_for_alerts()

    for name in PROGRAMS:
        running.kill(name)
    running.wait_for_alerts(outage, *(f"{name} does not run" for name in PROGRAMS))

    for name in PROGRAMS:
        running.start(name)
    running.wait_for_alerts()
