"""The socket at which the web server listens, and its way to the web server of the next release.

The kernel queues connections at a socket until a process accepts them, and resets those in the
queue when the socket is closed. So servers that follow one another share one socket: the new one
gets it from the old one, through a Unix socket, and both accept until the old one stops.

The workers of a server that was killed end a moment after it, and keep the socket until then: the
next server waits for the address.

This module imports only the standard library, because granian's parent loads nothing of the
platform.
"""

import errno
import os
import socket
import struct
import sys
import threading
import time
from pathlib import Path

# For an address in use; the end of a killed process takes less, also on a busy machine.
IN_USE_SECONDS = 10.0
_ANSWER_SECONDS = 2.0
_POLL_SECONDS = 0.02
_CREDENTIALS = struct.Struct("3i")  # pid, uid and gid of the peer: SO_PEERCRED in unix(7)


def listen(host: str, port: int, backlog: int, handover: Path | None) -> socket.socket:
    """The socket of a server that runs already and hands its socket over, at this path with its pid
    appended; else a new one. Raises OSError; for an address in use after `IN_USE_SECONDS`."""
    for path in handover.parent.glob(f"{handover.name}.*") if handover else ():
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(_ANSWER_SECONDS)
            try:
                client.connect(str(path))
                _, files, _, _ = socket.recv_fds(client, 1, 1)
            except ConnectionRefusedError:  # its server has ended
                path.unlink(missing_ok=True)
                continue
            except OSError:
                continue
        listener = socket.socket(fileno=files[0]) if files else None
        if listener and listener.getsockname()[:2] == (host, port):
            return listener
        if listener:
            listener.close()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    deadline = 0.0
    while True:
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(backlog)
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRINUSE or (deadline and time.monotonic() > deadline):
                raise
        else:
            return listener
        if not deadline:
            deadline = time.monotonic() + IN_USE_SECONDS
            text = f"Port {port} of {host} is in use: waiting up to {IN_USE_SECONDS:g} s for it."
            sys.stderr.write(f"{text}\n")
        time.sleep(_POLL_SECONDS)


def hand_over(listener: socket.socket, handover: Path) -> None:
    """Give the socket to any server of this user that asks, from now on, in a thread."""
    handover.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = handover.with_name(f"{handover.name}.{os.getpid()}")
    path.unlink(missing_ok=True)
    door = socket.socket(socket.AF_UNIX)
    door.bind(str(path))
    path.chmod(0o600)
    door.listen()
    threading.Thread(target=_serve, args=(door, listener), name="handover", daemon=True).start()


def _serve(door: socket.socket, listener: socket.socket) -> None:
    while True:
        client, _ = door.accept()
        with client:
            option = socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size
            _pid, uid, _gid = _CREDENTIALS.unpack(client.getsockopt(*option))
            if uid in (os.geteuid(), 0) and listener.fileno() >= 0:
                socket.send_fds(client, [b"+"], [listener.fileno()])
