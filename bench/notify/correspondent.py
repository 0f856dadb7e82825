"""A publisher and a subscriber in one process, so that one clock measures a message's whole way.

    python -m bench.notify.correspondent --port 8000 --token mp_… --prefix a --progress FILE
        --sink-port 9000 --rate 3

It publishes at random moments, on average `--rate` messages a second. Without a rate it measures in
the first third of `--seconds` how many are delivered a second when 500 are always in flight, and
then publishes at half of that rate. On SIGTERM it waits for what is on its way, and prints, in
milliseconds, how long messages took
from the answer to the publisher until their first byte at the subscriber. Standard library only.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import select
import signal
import socket
import sys
import time
from collections import deque

from bench.harness.programs import load
from bench.harness.programs.load import Connection
from bench.harness.programs.progress import Progress
from bench.harness.programs.sink import ANSWER, content_length

_MAX_IN_FLIGHT = 500
_LAST_SECONDS = 30.0  # for what is on its way when it is stopped
_ORDER = re.compile(rb'"order":"([^"]+)"')


class Publisher(Connection):
    """Knows the key of the message that is in flight."""

    def body(self) -> bytes:
        self.key_of_it = self._key(self._prefix, self.accepted)
        return super().body()


class Correspondent:
    """One epoll loop over both sides' connections."""

    def __init__(self, options: argparse.Namespace, publishers: list[Publisher]) -> None:
        self.options, self.stopping = options, False
        self.rate: float = options.rate
        self._publishers = {each.socket.fileno(): each for each in publishers}
        self._idle = deque(publishers)
        self._listener = socket.create_server(("127.0.0.1", options.sink_port), backlog=1024)
        self._subscribed: dict[int, socket.socket] = {}
        self._partial: dict[int, tuple[bytes, float]] = {}
        # Moments by key, until the other one of the two is known: a message may arrive before its
        # publisher has the answer.
        self._answered: dict[bytes, float] = {}
        self._arrived: dict[bytes, float] = {}
        self._in_flight = self.arrived = self.published = 0
        self.taken: list[float] = []  # seconds
        self._poller = select.epoll()
        for fd in (self._listener.fileno(), *self._publishers):
            self._poller.register(fd, select.EPOLLIN)

    def run(self) -> None:
        begun = due = time.perf_counter()
        while not self.stopping:
            now = time.perf_counter()
            if not self.rate and now - begun > self.options.seconds / 3:
                self.rate = self.arrived / (now - begun) / 2
                self.taken.clear()
                due = now
            if not self.rate:
                while self._idle and self._in_flight < _MAX_IN_FLIGHT:
                    self._publish()
            elif self._in_flight >= _MAX_IN_FLIGHT:
                due = now  # what the first third has piled up must be delivered first
            else:
                while self._idle and due <= now:
                    self._publish()
                    due += random.expovariate(self.rate)
            self._poll(max(0.0, min(0.1, due - now)) if self.rate else 0.01)
        deadline = time.perf_counter() + _LAST_SECONDS
        while self._in_flight and time.perf_counter() < deadline:
            self._poll(0.1)

    def _publish(self) -> None:
        self._idle.popleft().send()
        self._in_flight += 1
        self.published += 1

    def _poll(self, seconds: float) -> None:
        for fd, _ in self._poller.poll(seconds):
            if publisher := self._publishers.get(fd):
                if publisher.receive():
                    self._note(publisher.key_of_it.encode(), self._answered, self._arrived)
                    self._idle.append(publisher)
            elif fd == self._listener.fileno():
                client, _address = self._listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._subscribed[client.fileno()] = client
                self._poller.register(client, select.EPOLLIN)
            else:
                self._receive(fd)

    def _receive(self, fd: int) -> None:
        now = time.perf_counter()
        data = self._subscribed[fd].recv(65536)
        if not data:
            self._poller.unregister(fd)
            self._subscribed.pop(fd).close()
            return
        before, first = self._partial.pop(fd, (b"", now))
        data = before + data
        end = data.find(b"\r\n\r\n")
        if end < 0 or len(data) < end + 4 + content_length(data[:end]):
            self._partial[fd] = data, first
            return
        self._subscribed[fd].sendall(ANSWER)
        found = _ORDER.search(data, end)
        assert found
        self.arrived += 1
        self._in_flight -= 1
        self.options.progress.add(1)
        self._note(found[1], self._arrived, self._answered, first)

    def _note(
        self,
        key: bytes,
        mine: dict[bytes, float],
        other: dict[bytes, float],
        at: float | None = None,
    ) -> None:
        """Note when this message was answered or arrived (`mine`); with both the time is known."""
        at = time.perf_counter() if at is None else at
        there = other.pop(key, None)
        if there is None:
            mine[key] = at
        else:
            answered, arrived = (there, at) if mine is self._arrived else (at, there)
            self.taken.append(max(0.0, arrived - answered))

    def stop(self, *_: object) -> None:
        self.stopping = True


def main() -> None:
    parser = load.options("Publish, and time what arrives.")
    parser.add_argument("--sink-port", type=int, required=True)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    options.progress = Progress(options.progress)
    publishers = [
        Publisher(options.port, options.token, f"{options.prefix}-{number}")
        for number in range(options.connections)
    ]
    correspondent = Correspondent(options, publishers)
    signal.signal(signal.SIGTERM, correspondent.stop)
    correspondent.run()
    times = sorted(correspondent.taken) or [0.0]
    report = {
        f"{name}_ms": round(times[min(len(times) - 1, int(len(times) * part))] * 1000, 2)
        for name, part in (("p50", 0.5), ("p95", 0.95), ("max", 1.0))
    }
    report |= {"rate": round(correspondent.rate), "published": correspondent.published}
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main()
