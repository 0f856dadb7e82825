"""The same short messages through Kannel, over HTTP and SMPP."""

import os
import re
import shutil
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.gateway import sms_messages, sms_rows
from bench.gateway.sms_side import Sms
from bench.harness.ground import Ground
from bench.harness.processes import BenchFailed, Crew, Program
from bench.notify.notify_rows import same
from bench.notify.sender import sink
from bench.references import environment
from bench.references.kannel import configuration
from msgplatform.core.servers.private_server import free_port

CONNECTIONS = 64
# Debian's package, and those of what it is linked with that a machine may lack.
_PACKAGES = ("kannel", "libct4", "libhiredis0.14", "libpcre3")
_HEARD = re.compile(rb"GET /hook\?number=(\d+)&state=1 HTTP/1\.1")
_PACKAGE = "bench.references.kannel"


class Kannel(Sms):
    """Kannel 1.4.5 (its own licence, like BSD's), bearerbox and smsbox, in C: one message a GET
    over 64 connections, for it has no batches; SMPP with the same 8 connections and a window of
    32 to a center that answers at once; the receipt is a GET to the business system. Messages not
    yet sent are files of its spool, which are never synced, and what a receipt belongs to is in
    memory: nothing is kept of a message that ended, and no failed GET is tried again. So it does
    much less than ours: no archive, no idempotency key, no signature."""

    name = "kannel"
    _folder = Path()
    _path = ""

    @classmethod
    def install(cls, ground: Ground) -> None:
        cls.install_programs()

    @classmethod
    def install_programs(cls) -> None:
        """Raises SideMissing."""
        if shutil.which("bearerbox") and shutil.which("smsbox"):
            cls._path = os.environ["PATH"]
            return
        cls._folder = environment.debian_packages("kannel", *_PACKAGES)
        cls._path = str(cls._folder / "usr" / "sbin")

    def programs(self) -> Sequence[Program]:
        ground = self.ground
        self._submits = ground.file("center.submits")
        ports = configuration.Ports(free_port(), ground.sms_port, ground.web_port, ground.smg_port)
        file, store = ground.file("kannel.conf"), ground.folder / f"spool-{self.stretch}"
        store.mkdir()
        configuration.write(file, ports, store)
        center = ground.module(
            "center", f"{_PACKAGE}.center", "--port", ports.center, "--submits", self._submits,
            load=True, ready=_listens(ports.center),
        )  # fmt: skip
        load = ground.module(
            "load", f"{_PACKAGE}.sms_load",
            *("--port", ports.http, "--hook", ground.sink_url, "--sender", sms_rows.SP_NUMBER),
            *("--token", "-", "--prefix", "-", "--connections", CONNECTIONS),
            *("--progress", self._sent.file, "--accepted", self._accepted),
            *("--behind", self._done.file, "--at-most", self._at_most),
            load=True,
        )  # fmt: skip
        return [
            sink(ground, self._heard, self._bodies, "--requests"), center,
            self._program("bearerbox", file, ports.smsbox),
            self._program("smsbox", file, ports.http), load,
        ]  # fmt: skip

    def _program(self, name: str, file: Path, port: int) -> Program:
        argv, variables = self.command(name, file)
        return Program(name, argv, {**self.ground.environment, **variables}, ready=_listens(port))

    @classmethod
    def command(cls, name: str, file: Path) -> tuple[list[str], dict[str, str]]:
        """The command line of one of its programs, and the variables that it needs."""
        libraries = ":".join(map(str, environment.libraries(cls._folder)))
        program = shutil.which(name, path=cls._path) or name
        return [program, "-v", "3", str(file)], {"LD_LIBRARY_PATH": libraries}

    def archived(self) -> int:
        """It has no archive: a message is done when the business system has heard of it."""
        return self._heard.count

    def check(self, crew: Crew) -> None:
        """Each accepted message was submitted once, with its text, and heard of once."""
        accepted = [int(line) for line in self._accepted.read_text().split()]
        same(len(set(accepted)), self._sent.count, "accepted messages")
        submits = Counter(self._submits.read_text().splitlines())
        expected = Counter(
            f"{sms_messages.recipient(n)} {sms_messages.text(n).encode('utf-16-be').hex()}"
            for n in accepted
        )
        same(submits.total(), len(accepted), "Submits")
        if submits != expected:
            raise BenchFailed("a Submit is not what was accepted")
        lines = self._bodies.read_bytes().splitlines()
        heard = [match and int(match[1]) for match in map(_HEARD.fullmatch, lines)]
        same(len(heard), len(accepted), "events received")
        if set(heard) != set(accepted):
            raise BenchFailed("an event is not the ending of a message that was accepted")


def _listens(port: int) -> Callable[[], bool]:
    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    return listens
