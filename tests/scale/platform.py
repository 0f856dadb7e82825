"""The platform on a cluster of databases."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.cluster import DAEMONS, MIGRATE, PATIENT_LEASE_SECONDS, ROOT, WEB, Cluster
from tests.scale.galera import Galera, Node

DATABASE = "platform"


class GaleraPlatform(Cluster):
    """Notify with one of each program; no delivery is sent again while a database is away."""

    def __init__(
        self, folder: Path, galera: Galera, programs: tuple[str, ...] = (WEB, *DAEMONS)
    ) -> None:
        super().__init__(folder, galera.url(DATABASE), programs)
        self.galera = galera
        self.expected_errors = {"database_away"}
        self.environment["NOTIFY_LEASE_SECONDS"] = str(PATIENT_LEASE_SECONDS)

    def fill_database(self) -> None:
        """The copies of other tests need a server of their own."""
        self.galera.writer().execute(f"CREATE DATABASE {DATABASE}")
        self.console.run(MIGRATE)

    def readiness(self) -> dict[str, Any]:
        """The answer of /readyz."""
        try:
            with urllib.request.urlopen(self.base_url + "/readyz", timeout=10) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refusal:
            return json.load(refusal)

    def doctor(self, node: Node) -> str:
        """The report of `doctor` that asks one node itself."""
        result = subprocess.run(
            [sys.executable, "manage.py", "doctor"], cwd=ROOT, check=False, text=True,
            env={**self.environment, "DATABASE_URL": node.url(DATABASE)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return result.stdout
