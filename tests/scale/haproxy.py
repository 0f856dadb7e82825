"""HAProxy with the configuration that operators deploy, on private ports in a private folder."""

import os
import shutil
import socket as sockets
from collections.abc import Collection, Mapping
from pathlib import Path

from msgplatform.core.servers.private_server import (
    PrivateServer,
    ServerMissing,
    find_program,
    free_port,
)

DEPLOYED = Path(__file__).resolve().parents[2] / "deploy" / "haproxy"
# Of the system: a test runs HAProxy as its own user, and reads its log in the folder.
_SYSTEM = {"log": "log stdout format raw local0 info", "user": "", "group": ""}
_ALWAYS = {"global", "defaults", "peers"}


def render(text: str, sections: Collection[str]) -> str:
    """The configuration with these `listen` sections only, and nothing of the system."""
    lines: list[str] = []
    is_wanted = True
    for line in text.splitlines():
        words = line.split()
        if words and not line.startswith((" ", "#")):
            is_wanted = words[0] in _ALWAYS or words[1] in sections
        if not is_wanted:
            continue
        if words and words[0] in _SYSTEM and words[1] != "global":
            line = f"    {_SYSTEM[words[0]]}"
        lines.append(line)
    return "\n".join([*lines, ""])


class HaProxy(PrivateServer):
    """HAProxy with some `listen` sections of deploy/haproxy/haproxy.cfg.

    `addresses` are values for the variables of the configuration, such as {"GALERA_1":
    "127.0.0.1:15001"}. A variable of `ports` names the address on which a section listens: each
    gets a free port of this machine (`address`).
    """

    name = "haproxy"

    def __init__(
        self,
        directory: Path,
        sections: Collection[str],
        addresses: Mapping[str, str],
        ports: Collection[str],
    ) -> None:
        super().__init__(directory, directory / "admin.sock")
        self._sections = sections
        self._environment = {
            "FOLDER": str(directory),
            "ADMIN_SOCKET": str(self.socket),
            **{name: f"127.0.0.1:{free_port()}" for name in ("PEER_1", "PEER_2", *ports)},
            **addresses,
        }

    def address(self, variable: str) -> str:
        """`host:port` of a variable of the configuration."""
        return self._environment[variable]

    def port(self, variable: str) -> int:
        return int(self.address(variable).rpartition(":")[2])

    @property
    def argv(self) -> list[str]:
        program = find_program("haproxy")
        if program is None:
            raise ServerMissing("haproxy was not found. Run scripts/packages.sh.")
        values = [f"{name}={value}" for name, value in self._environment.items()]
        configuration = str(self.directory / "haproxy.cfg")
        return ["/usr/bin/env", *values, str(program), "-db", "-f", configuration]

    def prepare(self) -> None:
        super().prepare()
        for file in DEPLOYED.iterdir():
            shutil.copy(file, self.directory)
        configuration = self.directory / "haproxy.cfg"
        configuration.write_text(self.rendered(configuration.read_text()))

    def rendered(self, text: str) -> str:
        """The configuration that this HAProxy reads, of that which is deployed."""
        return render(text, self._sections)

    def answers(self) -> bool:
        try:
            self.command("show version")
        except OSError:
            return False
        return True

    def command(self, line: str) -> str:
        """The answer of the admin socket to a command such as `show servers state galera`."""
        with sockets.socket(sockets.AF_UNIX) as client:
            client.settimeout(60)
            client.connect(os.fspath(self.socket))
            client.sendall(line.encode() + b"\n")
            answer = b""
            while chunk := client.recv(65536):
                answer += chunk
        return answer.decode()

    def states(self, section: str) -> dict[str, bool]:
        """Server of a section → True if HAProxy gives it connections."""
        rows = [line.split() for line in self.command(f"show servers state {section}").splitlines()]
        return {row[3]: row[5] == "2" for row in rows if len(row) > 6 and row[0].isdigit()}
