"""One blocking connection: whole frames in, frames out."""

import socket
import time

from gateway import sgip


def connect(port: int) -> socket.socket:
    """A connection, as soon as the other end listens."""
    while True:
        try:
            made = socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            time.sleep(0.05)
            continue
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made


def read(stream) -> sgip.Command | None:
    """The next command; None when the other end is gone."""
    head = stream.read(4)
    if len(head) < 4:
        return None
    return sgip.decode(head + stream.read(int.from_bytes(head, "big") - 4))
