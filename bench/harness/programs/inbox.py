"""The requests that consumers of a bench take in: accepted and read in their owner's epoll loop."""

import select
import socket
import time
from typing import NamedTuple


class Received(NamedTuple):
    """A whole request, the connection that waits for its answer, and when its first byte came
    (monotonic seconds)."""

    client: socket.socket
    head: bytes
    body: bytes
    first_at: float


class Inbox:
    """Listens on a port. The owner hands over each event of a file descriptor that is not its
    own."""

    def __init__(self, port: int, poller: select.epoll) -> None:
        self._poller = poller
        self._clients: dict[int, socket.socket] = {}
        self._partial: dict[int, tuple[bytes, float]] = {}
        self._listener = socket.create_server(("127.0.0.1", port), backlog=1024)
        self._listening = self._listener.fileno()
        poller.register(self._listening, select.EPOLLIN)

    def take(self, fd: int) -> Received | None:
        """The request that is whole now, if there is one: connections are kept open, and a sender
        waits for its answer before its next request."""
        if fd == self._listening:
            self._accept()
            return None
        client, now = self._clients[fd], time.monotonic()
        try:
            data = client.recv(262_144)
        except OSError:
            data = b""
        if not data:  # the sender closed it, or was killed
            self._poller.unregister(fd)
            self._clients.pop(fd).close()
            self._partial.pop(fd, None)
            return None
        if fd in self._partial:
            before, now = self._partial.pop(fd)
            data = before + data
        end = data.find(b"\r\n\r\n")
        if end < 0 or len(data) < end + 4 + (length := content_length(data[:end])):
            self._partial[fd] = data, now
            return None
        return Received(client, data[:end], data[end + 4 : end + 4 + length], now)

    def _accept(self) -> None:
        client, _address = self._listener.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._clients[client.fileno()] = client
        self._poller.register(client, select.EPOLLIN)


def content_length(head: bytes) -> int:
    lowered = head.lower()
    start = lowered.find(b"content-length:")
    return int(lowered[start + 15 :].split(b"\r\n", 1)[0]) if start >= 0 else 0
