"""A Redis that survives its server: three servers and three Sentinels with the settings that
operators deploy, and HAProxy in front of the servers."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from msgplatform.core.connections import RedisError
from msgplatform.core.servers.private_server import (
    PrivateServer,
    RedisServer,
    ServerMissing,
    find_redis,
    free_port,
)
from tests.redis_client import connect
from tests.scale.haproxy import HaProxy
from tests.scale.relay import Relay
from tests.scale.strikes import PATIENCE_SECONDS

DEPLOYED = Path(__file__).resolve().parents[2] / "deploy" / "redis"
SERVERS = 3


def _program() -> str:
    program = find_redis()
    if program is None:
        raise ServerMissing("redis-server was not found. Run scripts/packages.sh.")
    return str(program)


class Member(RedisServer):
    """One server of a group, with a relay before it: replicas and Sentinel know the relay's
    address, HAProxy the server's own."""

    def __init__(self, directory: Path, group: str) -> None:
        super().__init__(directory, directory / "r.sock", port=free_port())
        self._group = group
        self.relay = Relay(free_port(), self.port)

    @property
    def argv(self) -> list[str]:
        return [
            *(_program(), str(self.directory / "redis.conf")),
            *("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory)),
            *("--unixsocket", str(self.socket), "--unixsocketperm", "600", "--daemonize", "no"),
            *("--replica-announce-ip", "127.0.0.1"),
            *("--replica-announce-port", str(self.relay.port)),
        ]

    def prepare(self) -> None:
        """Put the deployed configuration into its folder, once: Sentinel changes it."""
        super().prepare()
        configuration = self.directory / "redis.conf"
        if not configuration.exists():
            lines = (DEPLOYED / f"{self._group}.conf").read_text().splitlines(keepends=True)
            own = (line for line in lines if line.split()[:1] not in (["dir"], ["bind"], ["port"]))
            configuration.write_text("".join(own))

    def follow(self, master: Member) -> None:
        """Be a replica of this server from now on."""
        client = connect(self.url)
        client.execute_command("REPLICAOF", "127.0.0.1", master.relay.port)
        client.config_rewrite()

    def replication(self) -> dict[str, Any]:
        """INFO replication; empty when the server does not answer."""
        try:
            return dict(connect(self.url, retries=0).info("replication"))
        except RedisError:
            return {}

    def freeze(self) -> None:
        assert self.pid
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.pid
        os.kill(self.pid, signal.SIGCONT)


class Sentinel(PrivateServer):
    """One of the Sentinels of a group; `master_port` is where it finds the first master."""

    name = "sentinel"

    def __init__(self, directory: Path, group: str, master_port: int) -> None:
        super().__init__(directory, directory / "s.sock")
        self._group, self._master_port = group, master_port
        self.port = free_port()

    @property
    def argv(self) -> list[str]:
        return [_program(), str(self.directory / "sentinel.conf"), "--sentinel"]

    def prepare(self) -> None:
        super().prepare()
        lines = ["bind 127.0.0.1", f"port {self.port}", f"dir {self.directory}"]
        for line in (DEPLOYED / "sentinel.conf").read_text().splitlines():
            words = line.split()
            if words[:1] == ["sentinel"] and words[2] == self._group:
                if words[1] == "monitor":
                    words[3:5] = ["127.0.0.1", str(self._master_port)]
                lines.append(" ".join(words))
        (self.directory / "sentinel.conf").write_text("\n".join([*lines, ""]))

    def answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as client:
                client.sendall(b"PING\r\n")
                return client.recv(64).startswith(b"+PONG")
        except OSError:
            return False

    def view(self) -> dict[str, Any]:
        """The facts about the master as this Sentinel sees it; empty when it does not answer."""
        client: Any = connect(f"redis://127.0.0.1:{self.port}")
        try:
            return dict(client.sentinel_master(self._group))
        except RedisError:
            return {}


class Group:
    """The servers, Sentinels and HAProxy of one Redis: `name` is work or sms, `url` its address."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.members = [Member(folder / f"{name}{n}", name) for n in range(SERVERS)]
        first = self.members[0]
        self.sentinels = [
            Sentinel(folder / f"{name}-s{n}", name, first.relay.port) for n in range(SERVERS)
        ]
        section = f"{name}-redis"
        variable = f"{name.upper()}_REDIS"
        self.haproxy = HaProxy(
            folder / f"{name}-proxy",
            {section},
            {
                f"{variable}_{n}": f"127.0.0.1:{member.port}"
                for n, member in enumerate(self.members, 1)
            },
            {f"{variable}_ADDRESS"},
        )
        self._address = f"{variable}_ADDRESS"
        self._section = section

    @property
    def url(self) -> str:
        return f"redis://{self.haproxy.address(self._address)}/0"

    def __enter__(self) -> Group:
        for member in self.members:
            member.relay.start()
            member.start()
        for member in self.members[1:]:
            member.follow(self.members[0])
        for sentinel in self.sentinels:
            sentinel.start()
        self.haproxy.start()
        self.make_whole()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for server in (self.haproxy, *self.sentinels, *self.members):
            server.kill()
        for member in self.members:
            member.relay.stop()

    def master(self) -> Member:
        """The member to which HAProxy gives connections; waits for it."""
        return self._until(self._served, f"a master of {self.name}")

    def await_master_beside(self, member: Member) -> None:
        """Wait until HAProxy gives connections to another member than this one."""
        self._until(lambda: self._served() not in (None, member), f"a new master of {self.name}")

    def _served(self) -> Member | None:
        states = self.haproxy.states(self._section)
        up = [member for member, is_up in zip(self.members, states.values(), strict=True) if is_up]
        return up[0] if len(up) == 1 else None

    def make_whole(self) -> None:
        """Start what is dead, and wait until all know each other and have all data."""
        for member in self.members:
            member.start()
        self._until(self._is_whole, f"the group {self.name} to be whole")

    def _is_whole(self) -> bool:
        facts = [member.replication() for member in self.members]
        masters = [one for one in facts if one.get("role") == "master"]
        if len(masters) != 1 or self._served() is None:
            return False
        online = [one for one in facts if one.get("master_link_status") == "up"]
        return len(online) == SERVERS - 1 == masters[0]["connected_slaves"] and all(
            view.get("num-slaves") == view.get("num-other-sentinels") == SERVERS - 1
            and view["flags"] == "master"
            for view in (sentinel.view() for sentinel in self.sentinels)
        )

    def _until(self, condition: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (answer := condition()):
            assert time.monotonic() < deadline, f"waited {PATIENCE_SECONDS:g} s for {what}"
            time.sleep(0.05)
        return answer
