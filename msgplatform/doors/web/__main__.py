"""The web server: `python -m msgplatform.doors.web --host 127.0.0.1 --port 8000 --workers 2`.

Granian's parent process loads nothing of the platform: each worker imports `asgi.py` for itself.

The kernel queues connections at a socket until a process accepts them, and resets those in the
queue when the socket is closed. So servers that follow one another share one socket: the new one
gets it from the old one, through a Unix socket, and both accept until the old one stops.

The workers of a server that was killed end a moment after it, and keep the socket until then: the
next server waits for the address.
"""

import argparse
import errno
import os
import socket
import struct
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from granian._granian import SocketHolder
from granian.constants import HTTPModes, Interfaces, Loops
from granian.http import HTTP1Settings
from granian.server.mp import MPServer

from msgplatform.core.servers import child_process
from msgplatform.doors.web import stopping

# Maximum connections of a worker, idle ones included; more wait in the kernel. An idle connection
# costs some kilobytes and no thread.
CONNECTIONS = 16_384
_BACKLOG = 4096
_OTHER_FILES = 512  # files that a worker may open beside its connections
# For an address in use; the end of a killed process takes less, also on a busy machine.
IN_USE_SECONDS = 10.0
_ANSWER_SECONDS = 2.0
_POLL_SECONDS = 0.02
_CREDENTIALS = struct.Struct("3i")  # pid, uid and gid of the peer: SO_PEERCRED in unix(7)


@dataclass(frozen=True)
class Options:
    """The address to listen at, and limits; `drain_seconds` is for requests in flight at the end.

    A client without a whole head after `head_seconds` is disconnected, and so is a connection that
    is idle for as long. 60 is granian's maximum, and the time for which proxies keep idle
    connections.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    drain_seconds: int = 20
    head_seconds: int = 60
    handover: Path | None = None  # where the next server gets the socket


class Server(MPServer):
    """Granian's server, whose workers share an existing socket, instead of a socket for each.

    Granian's private names are used only here; `tests/programs/core/test_web_handover.py` tests it.
    """

    _shd: Any
    _sfd: Any

    def __init__(self, *args: Any, listener: socket.socket, **options: Any) -> None:
        super().__init__(*args, **options)
        self._listener = listener

    def _init_shared_socket(self) -> None:
        self._ssp, self._sso, self._sfd = None, None, self._listener.fileno()
        # Its stub lacks the arguments.
        self._shd = SocketHolder(self._listener.fileno(), False, _BACKLOG)  # type: ignore[call-arg]

    def _drop_shared_socket(self) -> None:
        """Nothing: `stopping.prepare` closes the listener."""


def serve(options: Options, application: str = "msgplatform.doors.web.asgi:application") -> None:
    """Serve until SIGTERM or SIGINT; then answer the requests that were read."""
    # Raise the limit of open files first: it decides the limit of connections.
    open_files = child_process.raise_open_files(CONNECTIONS + _OTHER_FILES)
    try:
        listener = listen(options.host, options.port, _BACKLOG, options.handover)
    except OSError as error:
        place = f"port {options.port} of {options.host}"
        sys.exit(f"The web server cannot listen at {place}: {error.strerror}.")
    server = Server(
        application,
        listener=listener,
        address=options.host,
        port=options.port,
        interface=Interfaces.ASGINL,
        workers=options.workers,
        loop=Loops.uvloop,
        http=HTTPModes.http1,
        websockets=False,
        backlog=_BACKLOG,
        backpressure=max(_OTHER_FILES, open_files - _OTHER_FILES),
        http1_settings=HTTP1Settings(header_read_timeout=options.head_seconds * 1000),
        respawn_failed_workers=True,
        workers_kill_timeout=options.drain_seconds,
    )
    server.on_startup(lambda: stopping.prepare(listener))
    if options.handover:
        path = options.handover
        server.on_startup(lambda: hand_over(listener, path))
    server.serve()


def listen(host: str, port: int, backlog: int, handover: Path | None) -> socket.socket:
    """The socket that a running server hands over at `handover` with its pid appended; else
    a new socket. Raises OSError; for an address in use after `IN_USE_SECONDS`."""
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
    handover_socket = socket.socket(socket.AF_UNIX)
    handover_socket.bind(str(path))
    path.chmod(0o600)
    handover_socket.listen()
    arguments = handover_socket, listener
    threading.Thread(target=_send_listener, args=arguments, name="handover", daemon=True).start()


def _send_listener(handover_socket: socket.socket, listener: socket.socket) -> None:
    while True:
        try:
            client, _ = handover_socket.accept()
            with client:
                option = socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size
                _pid, uid, _gid = _CREDENTIALS.unpack(client.getsockopt(*option))
                if uid in (os.geteuid(), 0) and listener.fileno() >= 0:
                    socket.send_fds(client, [b"+"], [listener.fileno()])
        except OSError:  # the next server did not wait, or this one has no file left
            time.sleep(_POLL_SECONDS)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m msgplatform.doors.web", description="Serve the console and the API."
    )
    default = Options()
    parser.add_argument("--host", default=default.host, help="a numeric address")
    parser.add_argument("--port", type=int, default=default.port)
    parser.add_argument("--workers", type=int, default=default.workers, help="processes")
    parser.add_argument(
        "--drain-seconds",
        type=int,
        default=default.drain_seconds,
        help="how long requests in flight may take after SIGTERM",
    )
    parser.add_argument(
        "--handover", type=Path, help="Unix socket at which the next server gets the listening one"
    )
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "msgplatform.settings")
    serve(Options(**vars(parser.parse_args())))


if __name__ == "__main__":
    main()
