"""The load generator: publishes over keep-alive connections, each waiting for its answer.

    python -m bench.harness.programs.load --port 8000 --token mp_… --prefix a --progress FILE …

On SIGTERM it sends nothing new, waits for requests in flight and prints how many messages each
connection saw accepted. Anything but 202 ends it with an error, because every key is sent once.
With `--behind FILE --at-most N` it holds back while N messages are accepted and not yet in FILE's
count; with `--kinds N` the messages have so many event types in turns. Standard library only, and
one epoll loop, because it must cost little beside the server.
"""

import argparse
import json
import select
import signal
import socket
import sys
import time
from array import array
from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from bench.harness.programs import quantiles
from bench.harness.programs.messages import (
    EVENT_TYPE,
    event_type,
    key,
    request_body,
    scattered_key,
)
from bench.harness.programs.progress import Progress

_CONNECT_SECONDS = 60.0


@lru_cache
def await_answer(port: int) -> None:
    """Wait until the server has answered a request, whatever it says: its parent process listens
    while the worker still starts, and what is sent meanwhile waits a second or more."""
    deadline = time.monotonic() + _CONNECT_SECONDS
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=60) as probe:
                probe.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
                if probe.recv(1):
                    return
        except OSError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.05)


class Connection:
    """One keep-alive connection with at most one request in flight.

    A request has `units` messages; `accepted` counts the messages of answered requests.
    """

    path = "/api/v1/messages"
    status = 202
    units = 1
    event_types: Sequence[str] = (EVENT_TYPE,)

    def __init__(self, port: int, token: str, prefix: str, scattered: bool = False) -> None:
        self._port = port
        await_answer(port)
        self.connect()
        self.is_idle, self.is_closed = True, False
        self.accepted = 0
        self.sent_at = 0.0
        self._prefix = prefix
        self._key = scattered_key if scattered else key
        self._buffer = b""
        self._head = (
            f"POST {self.path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
            f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\n"
            "Accept: application/json\r\nContent-Length: "
        ).encode()

    def connect(self) -> None:
        """As soon as the server listens; again after it closed the connection."""
        deadline = time.monotonic() + _CONNECT_SECONDS
        while True:
            try:
                self.socket = socket.create_connection(("127.0.0.1", self._port), timeout=60)
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
                continue
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.is_closed = False
            return

    def send(self) -> None:
        body = self.body()
        self.is_idle = False
        self.sent_at = time.perf_counter()
        self.socket.sendall(b"%s%d\r\n\r\n%s" % (self._head, len(body), body))

    def body(self) -> bytes:
        """The body of the next request."""
        event_type = self.event_types[self.accepted % len(self.event_types)]
        return request_body(self._key(self._prefix, self.accepted), event_type)

    def take(self, answer: bytes) -> None:
        """Look at the body of a good answer. Raises RuntimeError for a message that was refused."""

    def receive(self) -> bool:
        """Whether the answer is complete; `is_closed` is set when it was the last of this
        connection. Raises RuntimeError for a status other than `status`."""
        data = self.socket.recv(65536)
        if not data and self.is_idle:  # it was idle too long
            self.is_closed = True
            return False
        if not data:
            raise RuntimeError("the server closed a connection")
        answer = self._buffer + data
        end = answer.find(b"\r\n\r\n")
        if end < 0 or len(answer) < end + 4 + _length(answer[:end]):
            self._buffer = answer
            return False
        self._buffer = b""
        if not answer.startswith(b"HTTP/1.1 %d" % self.status):
            raise RuntimeError(f"not accepted: {answer[:500]!r}")
        self.take(answer[end + 4 :])
        self.is_closed = b"\r\nconnection: close\r\n" in answer[: end + 2]
        self.accepted += self.units
        self.is_idle = True
        return True


def _length(head: bytes) -> int:
    lowered = head.lower()
    start = lowered.find(b"content-length:")
    if start < 0:
        raise RuntimeError(f"an answer without its length: {head!r}")
    return int(lowered[start + 15 :].split(b"\r\n", 1)[0])


C = TypeVar("C", bound=Connection)


class Load:
    """All connections in one loop."""

    def __init__(self, options: argparse.Namespace, connections: Sequence[Connection]) -> None:
        self.progress = Progress(options.progress)
        self.behind = Progress(options.behind) if options.behind else None
        self.at_most = options.at_most
        self.latencies = array("f")
        self.stopping = False
        self.connections = connections

    def run(self) -> None:
        poller = select.epoll()
        by_fd = {c.socket.fileno(): c for c in self.connections}
        for fd in by_fd:
            poller.register(fd, select.EPOLLIN)
        # Until SIGTERM, and then until the last answer.
        waiting, open_requests = deque(self.connections), 0
        while open_requests or not self.stopping:
            while waiting and not self._must_wait():
                waiting.popleft().send()
                open_requests += 1
            for fd, _ in poller.poll(0.002 if waiting else 0.1):
                connection = by_fd[fd]
                is_answered = connection.receive()
                if connection.is_closed:
                    renew(connection, by_fd, poller)
                if is_answered:
                    self.progress.add(connection.units)
                    self.latencies.append(time.perf_counter() - connection.sent_at)
                    waiting.append(connection)
                    open_requests -= 1

    def _must_wait(self) -> bool:
        if self.stopping:
            return True
        behind = self.behind
        return behind is not None and self.progress.count - behind.count >= self.at_most

    def stop(self, *_: object) -> None:
        self.stopping = True


def renew(connection: C, by_fd: dict[int, C], poller: select.epoll) -> None:
    """Connect again, after the server has closed the connection."""
    poller.unregister(connection.socket.fileno())
    del by_fd[connection.socket.fileno()]
    connection.connect()
    by_fd[connection.socket.fileno()] = connection
    poller.register(connection.socket.fileno(), select.EPOLLIN)


def options(description: str) -> argparse.ArgumentParser:
    """The options of every load generator."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--token", required=True)
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--progress", type=Path, required=True)
    parser.add_argument("--behind", type=Path)
    parser.add_argument("--at-most", type=int, default=0)
    return parser


def run(options: argparse.Namespace, connections: Sequence[Connection]) -> None:
    """Send until SIGTERM and the last answer; then print what was accepted, and how quickly."""
    load = Load(options, connections)
    signal.signal(signal.SIGTERM, load.stop)
    load.run()
    accepted = [connection.accepted for connection in load.connections]
    json.dump({"accepted": accepted, **quantiles.report(load.latencies)}, sys.stdout)


def main() -> None:
    parser = options("Publish as fast as the server answers.")
    parser.add_argument("--scattered", action="store_true", help="keys like UUIDs, in no order")
    parser.add_argument("--kinds", type=int, default=0)
    given = parser.parse_args()
    if given.kinds:
        Connection.event_types = [event_type(kind) for kind in range(given.kinds)]
    connections = [
        Connection(given.port, given.token, f"{given.prefix}-{number}", given.scattered)
        for number in range(given.connections)
    ]
    run(given, connections)


if __name__ == "__main__":
    main()
