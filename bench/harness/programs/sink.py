"""A subscriber that costs little: takes POSTs on keep-alive connections and answers 200.

    python -m bench.harness.programs.sink --port 9000 --progress FILE --seen FILE

It keeps a digest of each body in memory (with `--bodies` the body itself, one on a line; with
`--requests` the first line of each request), and writes them to `--seen` on SIGTERM. Standard
library only: it shares no code with what it checks.
"""

from __future__ import annotations

import argparse
import select
import signal
import socket
from collections.abc import Callable
from pathlib import Path

from bench.harness.programs.messages import digest
from bench.harness.programs.progress import Progress

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


class Sink:
    """One epoll loop over all connections."""

    def __init__(
        self, port: int, progress: Progress, keep: Callable[[bytes, bytes], bytes]
    ) -> None:
        self.stopping = False
        self._keep = keep
        self.seen = bytearray()
        self._progress = progress
        self._clients: dict[int, socket.socket] = {}
        self._partial: dict[int, bytes] = {}
        self._listener = socket.create_server(("127.0.0.1", port), backlog=1024)
        self._listener.setblocking(False)
        self._poller = select.epoll()
        self._poller.register(self._listener, select.EPOLLIN)

    def run(self) -> None:
        listening = self._listener.fileno()
        while not self.stopping:
            for fd, _ in self._poller.poll(0.1):
                if fd == listening:
                    self._accept()
                else:
                    self._receive(fd)

    def stop(self, *_: object) -> None:
        self.stopping = True

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._clients[client.fileno()] = client
        self._poller.register(client, select.EPOLLIN)

    def _receive(self, fd: int) -> None:
        client = self._clients[fd]
        try:
            data = client.recv(65536)
        except ConnectionResetError:
            data = b""
        if not data:  # the sender closed it
            self._close(fd)
            return
        if fd in self._partial:
            data = self._partial.pop(fd) + data
        end = data.find(b"\r\n\r\n")
        if end < 0 or len(data) < end + 4 + (length := content_length(data[:end])):
            self._partial[fd] = data
            return
        # Counted before it is answered: what a sender knows as delivered is in the count.
        self.seen += self._keep(data[:end], data[end + 4 : end + 4 + length])
        self._progress.add(1)
        client.sendall(ANSWER)

    def _close(self, fd: int) -> None:
        self._poller.unregister(fd)
        self._clients.pop(fd).close()
        self._partial.pop(fd, None)


def content_length(head: bytes) -> int:
    lowered = head.lower()
    start = lowered.find(b"content-length:")
    return int(lowered[start + 15 :].split(b"\r\n", 1)[0]) if start >= 0 else 0


def _digest(head: bytes, body: bytes) -> bytes:
    return digest(body)


def _body(head: bytes, body: bytes) -> bytes:
    return body + b"\n"


def _request(head: bytes, body: bytes) -> bytes:
    return head.partition(b"\r\n")[0] + b"\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Take in webhooks.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--progress", type=Path, required=True)
    parser.add_argument("--seen", type=Path, required=True)
    parser.add_argument("--bodies", dest="keep", action="store_const", const=_body, default=_digest)
    parser.add_argument("--requests", dest="keep", action="store_const", const=_request)
    options = parser.parse_args()
    sink = Sink(options.port, Progress(options.progress), options.keep)
    signal.signal(signal.SIGTERM, sink.stop)
    sink.run()
    options.seen.write_bytes(sink.seen)


if __name__ == "__main__":
    main()
