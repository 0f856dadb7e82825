"""A gateway, a sender and a receiver on real sockets, with the turns driven by the test."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway import presence, sgip
from gateway.lifecycle import keys, store
from gateway.lifecycle.messages import Finished, Mt
from gateway.models import SmsGateway
from gateway.net import NetThread
from gateway.receiver.receiver import SmsReceiver
from gateway.sender.sender import SmsSender
from gateway.simulator.smg import Behaviour, Simulator
from msgplatform.core.errors import UNAVAILABLE

WAIT = 180.0  # seconds, generous
SP_NUMBER = "10655"


def gateway(port: int, name: str = "gw", **fields: Any) -> SmsGateway:
    """A row that fits the simulator's logins."""
    defaults: dict[str, Any] = {
        "host": "127.0.0.1", "login_name": "sp", "login_password": "secret",
        "smg_login_name": "smg", "smg_login_password": "secret", "corp_id": "99999",
        "response_timeout": 30.0,
    }  # fmt: skip
    return SmsGateway.objects.create(name=name, port=port, **{**defaults, **fields})


def mt(number: int, gateways: list[int], **fields: Any) -> Mt:
    values: dict[str, Any] = {
        "id": str(2**60 + number), "biz": 1, "account": 1, "user_number": f"86138{number:08d}",
        "text": f"text {number}", "sp_number": SP_NUMBER, "corp_id": "99999", "gateways": gateways,
        **fields,
    }  # fmt: skip
    return Mt(**values)


def accept(*messages: Mt) -> list[str]:
    store.accept([store.Call(messages, biz=1)], 86400)
    return [message.id for message in messages]


class Smg:
    """A simulated gateway in a loop of its own thread."""

    def __init__(self, log: Path, behaviour: Behaviour | None = None, **options: Any) -> None:
        self.log = log
        self._net = NetThread()
        self._options = {"behaviour": behaviour, **options}
        self.simulator: Simulator

    def __enter__(self) -> Smg:
        self._net.start()

        async def begin() -> Simulator:
            return await Simulator(self.log, **self._options).__aenter__()

        self.simulator = self._net.run(begin(), WAIT)
        return self

    def __exit__(self, *_: object) -> None:
        self._net.run(self.simulator.__aexit__(None, None, None), WAIT)
        self._net.stop()

    @property
    def port(self) -> int:
        return self.simulator.port

    def call(self, function: Callable[[], object]) -> None:
        self._net.call(function)

    def lines(self) -> list[list[str]]:
        """sequence, user, part, result of everything it took."""
        return [line.split("\t") for line in self.log.read_text("ascii").splitlines()]


@contextlib.contextmanager
def running(*workers: SmsSender | SmsReceiver) -> Iterator[None]:
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        for worker in workers:
            if isinstance(worker, SmsSender):
                worker.drain(time.monotonic() + 3)
            worker.stop()


def until(
    condition: Callable[[], object], *workers: SmsSender | SmsReceiver, seconds: float = WAIT
) -> None:
    """Drive the workers' turns until it is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s"
        for worker in workers:
            worker.turn()
        if not workers:
            time.sleep(0.01)


@contextlib.contextmanager
def turning(*workers: SmsSender | SmsReceiver) -> Iterator[None]:
    """Each worker's turns in a thread of its own, as its process would make them."""
    stop = threading.Event()

    def turns(worker: SmsSender | SmsReceiver) -> None:
        while not stop.is_set():
            try:
                worker.turn()
            except UNAVAILABLE:  # a Redis that stood still for long
                stop.wait(0.05)

    threads = [threading.Thread(target=turns, args=(worker,)) for worker in workers]
    with running(*workers):
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for worker, thread in zip(workers, threads, strict=True):
                while thread.is_alive():
                    worker.wake_event.set()  # a turn that waits for more ends at once
                    thread.join(0.02)


def ended(ids: list[str]) -> dict[str, Finished]:
    """Those of the messages that have an ending."""
    return {found.mt.id: found for found in store.read(ids) if found.final}


@pytest.fixture
def lasting_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is taken for gone because the machine was busy."""
    monkeypatch.setattr(presence.links, "_seconds", 3600.0)


def state(client: Any, message: str) -> str:
    return str((client.hget(keys.mt(int(message)), "state") or b"").decode())


class Raw:
    """A gateway's end of one connection to the receiver, frame by frame."""

    def __init__(self, port: int, source: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection(
            ("127.0.0.1", port), timeout=WAIT, source_address=(source, 0)
        )
        self._stream = sgip.FrameStream()
        self._frames: list[bytes] = []
        self._counter = 0

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def sequence(self) -> sgip.SequenceNumber:
        self._counter += 1
        return (3010000001, 1121120000, self._counter)

    def send(self, *commands: sgip.Command | bytes) -> None:
        frames = [c if isinstance(c, bytes) else c.encode() for c in commands]
        self.socket.sendall(b"".join(frames))

    def receive(self) -> Any:
        """The next command; None when the connection was closed."""
        while not self._frames:
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._frames += self._stream.feed(data)
        return sgip.decode(self._frames.pop(0))

    def ask(self, command: sgip.Command) -> int:
        """Send it; the Result of its response."""
        self.send(command)
        answer = self.receive()
        assert answer.sequence == command.sequence
        return int(answer.result)

    def bind(self, name: str = "smg", password: str = "secret", kind: int = 2) -> int:
        return self.ask(sgip.Bind(self.sequence(), kind, name, password))
