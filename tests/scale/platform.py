"""The platform on a cluster of databases."""

import json
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.cluster import (
    DAEMONS,
    MIGRATE,
    PATIENT_LEASE_SECONDS,
    ROOT,
    WEB,
    Cluster,
    times_of_notify,
)
from tests.scale.galera import Galera, Node

DATABASE = "platform"
OPEN_ALERTS = """
import json
from msgplatform.models import Alert
print(json.dumps(list(Alert.objects.filter(open_key__isnull=False).values_list("kind", flat=True))))
"""


class GaleraPlatform(Cluster):
    """Notify with one of each program; no delivery is sent again while a database is away."""

    def __init__(self, folder: Path, galera: Galera, name: str = DATABASE) -> None:
        super().__init__(folder, galera.url(name), (WEB, *DAEMONS))
        self.galera, self._name = galera, name
        self.expected_errors = {"database_away"}
        self.environment |= {
            **times_of_notify(2 * PATIENT_LEASE_SECONDS),  # longer than a failover takes
            "NOTIFY_KEEP_DAYS": "0",  # the archiver, where it runs, takes everything at once
            "FLOWS": "notify",
        }

    def fill_database(self) -> None:
        """The copies of other tests need a server of their own."""
        self.galera.writer().execute(f"CREATE DATABASE {self._name}")
        self.console.run(MIGRATE)

    def manage(self, *arguments: str, **environment: str) -> str:
        """The output of a command of `manage.py`, whatever it ends with."""
        result = subprocess.run(
            [sys.executable, "manage.py", *arguments], cwd=ROOT, check=False, text=True,
            env={**self.environment, **environment},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return result.stdout

    def readiness(self) -> dict[str, Any]:
        """The answer of /readyz."""
        try:
            with urllib.request.urlopen(self.base_url + "/readyz", timeout=10) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refusal:
            return json.load(refusal)

    def doctor(self, node: Node) -> str:
        """The report of `doctor` that asks one node itself."""
        return self.manage("doctor", DATABASE_URL=node.url(self._name))

    def open_alerts(self) -> set[str]:
        """The kinds of the alerts that are open."""
        return set(self.script(OPEN_ALERTS))


class SpreadPlatform(GaleraPlatform):
    """Its programs connect through a proxy that spreads connections over all nodes. A person
    migrates, and the console asks, through HAProxy."""

    def fill_database(self) -> None:
        super().fill_database()
        self.environment["DATABASE_URL"] = self.galera.url(self._name, self.galera.spreading)
