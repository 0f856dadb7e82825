"""Three nodes of Galera with the settings that operators deploy, and HAProxy in front of them."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from configparser import ConfigParser
from contextlib import closing
from pathlib import Path
from types import TracebackType

import MySQLdb

from bench.harness.mariadb import MariaDb
from msgplatform.core.servers.private_server import ServerFailed, free_port, tail
from tests.scale.haproxy import HaProxy
from tests.scale.strikes import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]
DEPLOYED = ROOT / "deploy" / "galera" / "galera.cnf"
# The service of Debian does not run as root either: the copy of all data by rsync would fail.
_USER = "mysql"
_AS_USER = ["setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups", "--pdeathsig=keep"]
_POSITION = re.compile(r"Recovered position: ?(\S+)")
_STATUS = "SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_ready', 'wsrep_local_state')"
SYNCED = {"wsrep_ready": "ON", "wsrep_local_state": "4"}


class Node(MariaDb):
    """One node. `group_ports` are the ports of all nodes for the cluster's own messages."""

    name = "mariadb"

    def __init__(self, directory: Path, group_ports: Mapping[str, int], node_name: str) -> None:
        settings = ConfigParser(interpolation=None)
        settings.read(DEPLOYED)
        deployed = dict(settings["mariadbd"])
        own_ports = (
            f"gmcast.listen_addr=tcp://127.0.0.1:{group_ports[node_name]}"
            f";ist.recv_addr=127.0.0.1:{free_port()}"
        )
        small_cache = deployed["wsrep_provider_options"].strip('"').replace("=1G", "=256M")
        del deployed["bind_address"]  # 127.0.0.1, as all servers of tests
        options: dict[str, str | int] = {
            **deployed,
            "wsrep_cluster_address": "gcomm://"
            + ",".join(f"127.0.0.1:{port}" for port in group_ports.values()),
            "wsrep_node_name": node_name,
            "wsrep_node_address": "127.0.0.1",
            "wsrep_sst_receive_address": f"127.0.0.1:{free_port()}",
            "wsrep_provider_options": f"{small_cache};{own_ports}",
            # A node is killed, not its machine: what it wrote is the kernel's.
            "innodb_flush_log_at_trx_commit": 2,
        }
        super().__init__(directory, options)
        self.node_name = node_name
        self._arguments: list[str] = []
        self._waits = True

    @property
    def argv(self) -> list[str]:
        as_user = _AS_USER if os.geteuid() == 0 else []
        return [*as_user, *super().argv, *self._arguments]

    def prepare(self) -> None:
        """Make the data of a first node, or an empty folder that is filled from another node."""
        if self.directory.exists():
            return
        if "--wsrep-new-cluster" in self._arguments:
            super().prepare()
        else:
            self.data.mkdir(parents=True)
        if os.geteuid() == 0:
            subprocess.run(["chown", "-R", f"{_USER}:{_USER}", self.directory], check=True)

    def found(self) -> None:
        """Start as the first node of a new cluster."""
        self._arguments = ["--wsrep-new-cluster"]
        self.start()
        self._arguments = []

    def come_back(self, *, waits: bool = True) -> None:
        """Start after a crash, as the service of Debian does: at the position that is on disk.
        Without `waits` it may not have joined the others yet."""
        recovery = subprocess.run(
            [*self.argv, "--wsrep-recover"], capture_output=True, text=True, check=False
        )
        position = _POSITION.search(recovery.stdout + recovery.stderr)
        if position is None:
            raise ServerFailed(f"{self.node_name} has no position:\n{recovery.stderr[-2000:]}")
        self._arguments = [f"--wsrep-start-position={position[1]}"]
        self._waits = waits
        self.start()
        self._arguments, self._waits = [], True

    def answers(self) -> bool:
        return self.pid is not None and (not self._waits or self.status() == SYNCED)

    def status(self) -> dict[str, str]:
        """`wsrep_ready` and `wsrep_local_state`; empty when the node does not answer."""
        try:
            return dict(self.execute(_STATUS))
        except MySQLdb.Error:
            return {}

    def freeze(self) -> None:
        assert self.pid
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.pid
        os.kill(self.pid, signal.SIGCONT)

    def said(self) -> str:
        """The end of its log."""
        return tail(self.log)


def documented(word: str) -> str:
    """The SQL of docs/scale.md that contains this word: what operators are told is what runs."""
    text = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    (statement,) = [sql for sql in re.findall(r"```sql\n(.*?);?\n```", text, re.S) if word in sql]
    return statement


class SpreadingProxy(HaProxy):
    """The mistake: every node is a writer."""

    def rendered(self, text: str) -> str:
        lines = [line for line in super().rendered(text).splitlines() if "stick" not in line]
        return "\n".join(lines).replace(" backup", "") + "\n"


class Galera:
    """The cluster and its HAProxy: `url` is the one address of the database."""

    def __init__(self, folder: Path, count: int = 3) -> None:
        folder.chmod(0o711)  # the nodes run as another user
        group_ports = {f"galera{number}": free_port() for number in range(1, count + 1)}
        self.nodes = [Node(folder / name, group_ports, name) for name in group_ports]
        addresses = {
            name.upper().replace("GALERA", "GALERA_"): f"127.0.0.1:{node.port}"
            for name, node in zip(group_ports, self.nodes, strict=True)
        }
        self.haproxy = HaProxy(folder / "haproxy", ["galera"], addresses, ["GALERA_ADDRESS"])
        self.spreading = SpreadingProxy(
            folder / "spreading", ["galera"], addresses, ["GALERA_ADDRESS"]
        )

    def url(self, name: str, proxy: HaProxy | None = None) -> str:
        return f"mysql://root@{(proxy or self.haproxy).address('GALERA_ADDRESS')}/{name}"

    def __enter__(self) -> Galera:
        first, *others = self.nodes
        first.found()
        first.execute(documented("CREATE USER"))
        for node in others:
            node.start()
        self.haproxy.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for server in (self.haproxy, self.spreading, *self.nodes):
            server.kill()

    def writer(self) -> Node:
        """The node to which HAProxy leads; waits while it has none."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return self._writer()
            except MySQLdb.Error:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    def _writer(self) -> Node:
        connection = MySQLdb.connect(
            host="127.0.0.1", port=self.haproxy.port("GALERA_ADDRESS"), user="root",
            connect_timeout=60,
        )  # fmt: skip
        with closing(connection), connection.cursor() as cursor:
            cursor.execute("SELECT @@port")
            ((port,),) = cursor.fetchall()
        return next(node for node in self.nodes if node.port == port)

    def await_writer_beside(self, node: Node) -> None:
        """Wait until HAProxy leads to another node than this one."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            if self.writer() is not node:
                return
            time.sleep(0.1)
        raise AssertionError(f"{node.node_name} is still the writer after {PATIENCE_SECONDS} s")

    def make_whole(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Start what does not run, and wait until every node takes writes, and HAProxy knows. When
        none runs, the last view of the cluster is on disk, and they go on once all of it are there.
        """
        for node in self.nodes:
            if node.pid is None:
                node.come_back(waits=False)
        deadline = time.monotonic() + seconds
        while not (
            all(node.answers() for node in self.nodes)
            and all(self.haproxy.states("galera").values())
        ):
            if time.monotonic() > deadline:
                logs = "\n".join(node.said() for node in self.nodes)
                raise AssertionError(f"the cluster is not whole after {seconds} s:\n{logs}")
            time.sleep(0.1)


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
