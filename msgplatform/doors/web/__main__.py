"""The web server: `python -m msgplatform.doors.web --host 127.0.0.1 --port 8000 --workers 2`.

Granian's parent process loads nothing of the platform: each worker imports `asgi.py` for itself.
"""

import argparse
import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from granian._granian import SocketHolder
from granian.constants import HTTPModes, Interfaces, Loops
from granian.http import HTTP1Settings
from granian.server.mp import MPServer

from msgplatform.core.servers import child_process
from msgplatform.doors.web import listening, stopping

# Maximum connections of a worker, idle ones included; more wait in the kernel. An idle connection
# costs some kilobytes and no thread.
CONNECTIONS = 16_384
_BACKLOG = 4096
_OTHER_FILES = 512  # files that a worker may open beside its connections


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
    handover: Path | None = None  # where the next server gets the socket: `listening`


class Server(MPServer):
    """Granian whose workers share a socket that exists already; else it makes one for each worker.

    Only here are granian's private names used: `tests/programs/core/test_web_handover.py`.
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

    def _drop_shared_socket(self) -> None: ...


def serve(options: Options, application: str = "msgplatform.doors.web.asgi:application") -> None:
    """Serve until SIGTERM or SIGINT; then answer the requests that were read."""
    # Raise the limit of open files first: it decides the limit of connections.
    open_files = child_process.raise_open_files(CONNECTIONS + _OTHER_FILES)
    try:
        listener = listening.listen(options.host, options.port, _BACKLOG, options.handover)
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
        server.on_startup(lambda: listening.hand_over(listener, path))
    server.serve()


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
    options = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "msgplatform.settings")
    serve(
        Options(
            options.host, options.port, options.workers, options.drain_seconds,
            handover=options.handover,
        )
    )  # fmt: skip


if __name__ == "__main__":
    main()
