"""A real Tryton on SQLite: installed once beside the virtual environment, a copy for each run."""

import http.client
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

from msgplatform.core.servers.private_server import PrivateServer, free_port

_ROOT = Path(__file__).resolve().parents[2]
_INSTALLED = Path(sys.prefix) / "tryton"
PASSWORD = "hush-hush-9"  # as in scripts/tryton.sh


def install() -> None:
    """Nothing happens when it is there, as after `make tools`."""
    subprocess.run([_ROOT / "scripts" / "tryton.sh", sys.prefix], check=True, timeout=600)


class TrytonServer(PrivateServer):
    """Listens on 127.0.0.1; its database `crm` has parties and the user `admin`."""

    name = "tryton"
    start_seconds = 180.0

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, directory / "unused")
        self.port = free_port()
        self.file = directory / "crm.sqlite"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def argv(self) -> list[str]:
        programs = _INSTALLED / "venv" / "bin"
        configuration = self.directory / "trytond.conf"
        return [
            *(str(programs / "python"), str(programs / "trytond")),
            *("-c", str(configuration), "-d", "crm"),
        ]

    def prepare(self) -> None:
        install()
        super().prepare()
        shutil.copy(_INSTALLED / "data" / "crm.sqlite", self.file)
        (self.directory / "trytond.conf").write_text(
            f"[database]\nuri = sqlite://\npath = {self.directory}\n"
            f"[web]\nlisten = 127.0.0.1:{self.port}\n"
        )

    def answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            body = '{"id": 1, "method": "common.server.version", "params": []}'
            connection.request("POST", "/rpc/", body, {"Content-Type": "application/json"})
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """What its tables hold, read past the server."""
        connection = sqlite3.connect(f"file:{self.file}?mode=ro", uri=True)
        try:
            return connection.execute(query, values).fetchall()
        finally:
            connection.close()
