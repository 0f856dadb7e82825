"""Two HAProxy with one floating address, databases that say their name, and a client of both."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from msgplatform.core.servers.private_server import ServerMissing, find_program
from tests.scale.haproxy import DEPLOYED, render
from tests.scale.lan import Lan

ADDRESS, HUB = "10.77.0.10", "10.77.0.1"
HOSTS = {"haproxy1": "10.77.0.31", "haproxy2": "10.77.0.32"}
NODES = {"GALERA_1": 4001, "GALERA_2": 4002, "GALERA_3": 4003}
# As systemd: a HAProxy that ends is started again, unless it is to stay away.
_SERVICE = """
cd {folder}; trap 'kill $child 2>/dev/null; exit' TERM
while :; do
  if [ ! -e away ]; then
    {haproxy} -W -db -f haproxy.cfg -p pid >>haproxy.log 2>&1 & child=$!
    wait $child
  fi
  sleep 0.1
done
"""


class Pair:
    """Both machines. `host` of each method is haproxy1 or haproxy2."""

    def __init__(self, folder: Path, lan: Lan) -> None:
        self._folder, self._lan = folder, lan
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        for host in HOSTS:
            self._prepare(host)

    def _prepare(self, host: str) -> None:
        folder = self._folder / host
        shutil.copytree(DEPLOYED, folder)
        # The databases of this test are no Galera: what is tested is who leads to which.
        (folder / "galera-check").write_text("#!/bin/sh\nexit 0\n")
        configuration = render((folder / "haproxy.cfg").read_text(), {"galera", "alive"})
        (folder / "haproxy.cfg").write_text(configuration)
        restart = folder / "restart"
        restart.write_text(f"#!/bin/sh\nkill $(cat {folder}/pid)\n")
        restart.chmod(0o755)
        text = (folder / "keepalived.conf").read_text()
        for before, after in (
            ("10.0.0.10/24", f"{ADDRESS}/24"),
            ("/usr/bin/systemctl restart haproxy", str(restart)),
        ):
            assert before in text
            text = text.replace(before, after)
        (folder / "keepalived.conf").write_text(text)

    def __enter__(self) -> Pair:
        for name in ("keepalived", "haproxy", "curl"):
            if find_program(name) is None:
                raise ServerMissing(f"{name} was not found. Install the package of this name.")
        for host in HOSTS:
            nonlocal_bind = ["sysctl", "-qw", "net.ipv4.ip_nonlocal_bind=1"]
            subprocess.run(self._lan.inside(host, nonlocal_bind), check=True)
            self.start(host)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for host in HOSTS:
            self.kill(host)

    def start(self, host: str) -> None:
        """HAProxy, and the keepalived beside it."""
        folder = self._folder / host
        environment = {
            "FOLDER": str(folder), "ADMIN_SOCKET": str(folder / "admin.sock"), "LOCAL_PEER": host,
            "GALERA_ADDRESS": f"{ADDRESS}:3306",
            "PEER_1": f"{HOSTS['haproxy1']}:10000", "PEER_2": f"{HOSTS['haproxy2']}:10000",
            **{name: f"{HUB}:{port}" for name, port in NODES.items()},
        }  # fmt: skip
        service = _SERVICE.format(folder=folder, haproxy=find_program("haproxy"))
        self._run(f"{host} haproxy", host, ["sh", "-c", service], environment)
        self.start_keepalived(host)

    def start_keepalived(self, host: str) -> None:
        folder = self._folder / host
        command = [
            str(find_program("keepalived")), "--dont-fork", "--log-console", "--vrrp",
            "-f", str(folder / "keepalived.conf"), "-p", str(folder / "keepalived.pid"),
            "-r", str(folder / "vrrp.pid"),
        ]  # fmt: skip
        self._run(f"{host} keepalived", host, command, {})

    def _run(self, name: str, host: str, command: list[str], environment: dict[str, str]) -> None:
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                self._lan.inside(host, command), env={**os.environ, **environment},
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def kill(self, host: str) -> None:
        """Everything of this machine, at once."""
        for name in (f"{host} keepalived", f"{host} haproxy"):
            self._kill(name)

    def kill_keepalived(self, host: str) -> None:
        self._kill(f"{host} keepalived")

    def _kill(self, name: str) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._processes[name].pid, signal.SIGKILL)
        self._processes[name].wait()

    def kill_haproxy(self, host: str) -> None:
        """HAProxy only; nobody starts it again."""
        folder = self._folder / host
        (folder / "away").touch()
        service = self._processes[f"{host} haproxy"].pid
        for pid in _descendants(service):
            if Path(f"/proc/{pid}/comm").read_text().strip() == "haproxy":
                os.kill(pid, signal.SIGKILL)

    def reload(self, host: str) -> None:
        os.kill(int((self._folder / host / "pid").read_text().split()[0]), signal.SIGUSR2)

    def holders(self) -> list[str]:
        """The machines that have the floating address."""
        return [host for host in HOSTS if f"{ADDRESS}/" in self._lan.addresses(host)]

    def logs(self) -> str:
        return "\n".join(file.read_text()[-1500:] for file in self._folder.glob("**/*.log"))


def _descendants(pid: int) -> list[int]:
    children = [
        int(child)
        for path in Path(f"/proc/{pid}/task").glob("*/children")
        for child in path.read_text().split()
    ]
    return [*children, *(below for child in children for below in _descendants(child))]


class Witness:
    """A process in the hub: the databases, and a client that holds a session and opens new ones.

    Its lines are [unix seconds, event, node, through]: `new` for a connection that was answered,
    `refused` for one that was not, `work` for each piece of work of the session that is held, as
    the database `node` saw it, which came `through` one of the machines.
    """

    def __init__(self, folder: Path, lan: Lan) -> None:
        self._file = folder / "witness"
        self._process = subprocess.Popen(
            lan.inside("hub", [
                sys.executable, "-m", "tests.scale.floating_witness", str(self._file), ADDRESS, HUB,
                *map(str, NODES.values()),
            ]),
        )  # fmt: skip

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def lines(self) -> list[tuple[float, str, str, str]]:
        if not self._file.exists():
            return []
        whole = self._file.read_text().rpartition("\n")[0].splitlines()
        return [tuple(json.loads(line)) for line in whole]

    def last(self, event: str) -> tuple[float, str, str, str]:
        """The newest line of this kind; of unix second 0 when there is none."""
        return next((x for x in reversed(self.lines()) if x[1] == event), (0.0, event, "", ""))

    def since(self, at: float, event: str) -> list[tuple[float, str, str, str]]:
        return [line for line in self.lines() if line[0] >= at and line[1] == event]
