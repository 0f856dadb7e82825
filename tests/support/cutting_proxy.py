"""A proxy before a Unix socket that cuts the connection when it sees certain bytes go by."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable
from pathlib import Path


class CuttingProxy:
    """`cut` is set when the bytes came from a client; with `arrives` they are handed on and the
    server's answer is awaited, so that it has acted on them, and thrown away. `then` is called
    before the client sees the end of its connection. `after` are bytes that have to go by first, on
    the same connection."""

    def __init__(
        self,
        path: Path,
        target: Path,
        marker: bytes,
        arrives: bool,
        then: Callable[[], object] = lambda: None,
        after: bytes = b"",
    ) -> None:
        self.path, self.target, self.marker, self.arrives = path, target, marker, arrives
        self.then, self.after = then, after
        self.cut = threading.Event()

    def __enter__(self) -> CuttingProxy:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=[client], daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server:
            try:
                server.connect(str(self.target))
                self._carry(client, server)
            except OSError:  # the server is away, or was killed meanwhile
                return

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        has_begun = False
        with selectors.DefaultSelector() as selector:
            selector.register(client, selectors.EVENT_READ, server)
            selector.register(server, selectors.EVENT_READ, client)
            while True:
                for key, _ in selector.select():
                    source, sink = key.fileobj, key.data
                    assert isinstance(source, socket.socket)
                    data = source.recv(65536)
                    if not data:
                        return
                    if source is client:
                        has_begun = has_begun or self.after in data
                    if source is client and has_begun and self.marker in data:
                        if self.arrives:
                            server.sendall(data)
                            server.recv(65536)
                        self.then()
                        self.cut.set()
                        return
                    sink.sendall(data)
