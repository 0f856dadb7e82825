"""The whole platform on one machine: its programs, and the conditions for their start."""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from socket import socket
from typing import NoReturn, Self
from urllib.parse import urlsplit
from xmlrpc.client import Error as RpcError

from django.conf import settings
from msgspec import structs

from msgplatform import env as environment
from msgplatform.core import flows, logging
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.flows.programs import BULK, Daemon, redis_roles
from msgplatform.core.secrets.key_files import claim_state_directory
from msgplatform.core.servers.private_server import RedisServer, private_directory
from msgplatform.core.web import public_address
from msgplatform.operation.supervision import address, preparation, releases
from msgplatform.operation.supervision.config import Program
from msgplatform.operation.supervision.program_watch import ProgramWatch
from msgplatform.operation.supervision.run import Inheritance, Lock, Refused, Supervisor

log = logging.get(__name__)

_REDIS, _WEB, _BULK = 10, 100, 900  # priorities; daemons declare their own
_DRAIN_SECONDS = 20
_STOP_SECONDS = _DRAIN_SECONDS + 10  # to drain, and to close connections
_POLL_SECONDS = 0.05
_FOLLOW_SECONDS = 5.0  # between two looks at the own processes of flows
_WATCH_SECONDS = 1.0
_HAND_OVER_SECONDS = 10.0  # for the threads to end
# Seconds that daemons wait for the web server to listen, because callers wait for the web server.
# Afterwards the daemons start in any case.
_WEB_SECONDS = 30.0
_WEB_POLL_SECONDS = 0.1


class Platform:
    """Runs Redis (unless one is configured), the web server and every flow's daemons.

    `url` is the address that people open; `processes` is command → number of processes;
    `reservation` is the socket of `address.hold`, if the caller keeps the address already; `say`
    gets sentences for people. The running platform also starts and stops the own processes of
    subscriptions and gateways. Call `start` from a thread that stays. Raises Refused.
    """

    def __init__(
        self, host: str, port: int, *, migrate: bool, say: Callable[[str], None], workers: int = 1,
        processes: Mapping[str, int] | None = None, reservation: socket | None = None,
    ) -> None:  # fmt: skip
        self.state_dir = Path(settings.STATE_DIR)
        self.host, self.port = address.resolve(host, port), port
        self.url = address.public_url(self.host, port)
        self.migrate = migrate
        self.redis = embedded_redis()
        self._lock = Lock(self.state_dir / "run")
        self._reservation = reservation
        self.is_replaced = False  # `up.py` sets it at SIGUSR1, which an update sends
        self._supervisor = Supervisor(
            self.state_dir,
            supervisor_socket(),
            [
                *(Program(name, server.argv, _REDIS) for name, server in self.redis.items()),
                web(self.host, port, workers),
            ],
            {
                "STATE_DIR": str(self.state_dir),
                "PUBLIC_URL": self.url,
                "SANDBOX_URL": address.own_url(self.host, port),
            },
            environment.BASE_DIR,
        )
        self.log = self._supervisor.places.log
        self._daemons = daemons(processes or {})
        self._say = say
        self._program_watch = ProgramWatch(self._supervisor.places.logs, say)
        self._start_time = 0.0  # monotonic; 0.0 once the daemons are started
        self._follower = ThreadLoop("own-processes", self._follow, every=_FOLLOW_SECONDS)
        self._observer = ThreadLoop("program-watch", self._watch_programs, every=_WATCH_SECONDS)

    def start(self) -> Self:
        """Check, prepare the database, start everything; or go on with the programs of the
        `up` that this process replaces. Raises Refused, ServerMissing."""
        if inheritance := Inheritance.take():
            self._lock.adopt(inheritance.lock)
            os.set_inheritable(inheritance.reservation, False)
            self._reservation = socket(fileno=inheritance.reservation)
            self._supervisor.adopt(inheritance.supervisord)
            # supervisord keeps the groups that it has; a new daemon gets a group of its own.
            names = {str(info["name"]) for info in self._supervisor.processes()}
            self._daemons = [
                daemon
                if names & {daemon.name, f"{daemon.name}-0"}
                else structs.replace(daemon, comes_and_goes=True)
                for daemon in self._daemons
            ]
            self._follower.start()
            self._observer.start()
            return self
        claim_state_directory(self.state_dir)
        private_directory(self.state_dir / "run")
        # Take the lock first, because a second `up` must not migrate under the first one.
        self._lock.take()
        try:
            for server in self.redis.values():
                server.prepare()
            self._reservation = self._reservation or address.hold(self.host, self.port)
            preparation.run(self.migrate, self._say)
            public_address.keep_served(self.url)
            host = urlsplit(self.url).netloc
            releases.note_start(
                self._supervisor.places.release, releases.Address((self.host, self.port), host)
            )
            self._start_time = time.monotonic()
            self._supervisor.start()
            self._follower.start()
            self._observer.start()
        except BaseException:  # signals too: the next `up` must get the lock
            self._release()
            raise
        return self

    def hand_over(self, arguments: Sequence[str]) -> NoReturn:
        """Become the `up` of the release that the release file names; the programs go on."""
        for thread in (self._follower, self._observer):
            thread.stop(_HAND_OVER_SECONDS)
        record = releases.read(self._supervisor.places.release)
        if record is None or self._reservation is None:
            raise Refused("`up` cannot be replaced before its programs have started.")
        files = self._lock.file, self._reservation.fileno()
        Inheritance(*files, self._supervisor.pid).hand_over(
            [record.current.python, "-m", "msgplatform", *arguments], record.current.folder
        )

    def wait_until_it_serves(self, seconds: float) -> bool:
        """True if the web server answers in time and the platform does not stop meanwhile."""
        deadline = time.monotonic() + seconds
        while not address.ask(self.host, self.port):
            if self.is_stop_requested or time.monotonic() > deadline:
                return False
            if self.wait(_POLL_SECONDS) is not None:
                return False
        return True

    def wait(self, seconds: float | None = None) -> int | None:
        """supervisord's exit code; None if supervisord still runs after `seconds`."""
        return self._supervisor.wait(seconds)

    def request_stop(self) -> None:
        if not (self.is_stop_requested or self._supervisor.pid):
            self._say("It stops when the tables are ready.")
        self._supervisor.request_stop()

    @property
    def is_stop_requested(self) -> bool:
        return self._supervisor.is_stop_requested

    def stop(self) -> None:
        """Stop everything in order: daemons drain, then web, then Redis."""
        self._follower.stop()  # first, because the follower starts processes
        self._observer.stop()
        self._supervisor.stop()
        self._release()

    def _release(self) -> None:
        if self._reservation:
            self._reservation.close()
            self._reservation = None
        self._lock.release()

    def _follow(self) -> float | None:
        """Start the daemons, later start and stop the own processes of flows; nothing during a
        stop."""
        if self.is_stop_requested or self.wait(0) is not None:
            return None
        try:
            if self._start_time:
                is_late = time.monotonic() - self._start_time > _WEB_SECONDS
                if not is_late and not address.ask(self.host, self.port):
                    return _WEB_POLL_SECONDS
                self._supervisor.follow(self._daemons)
                self._start_time = 0.0
            self._supervisor.follow([*self._daemons, *own_processes()])
        except (OSError, RpcError) as error:
            if not self.is_stop_requested:
                log.warning("own_processes_wait", why=str(error)[:200])
        return None

    def _watch_programs(self) -> None:
        """Look for programs that crash again and again or hang; nothing during a stop."""
        if self.is_stop_requested or self.wait(0) is not None:
            return
        try:
            self._program_watch.look(self._supervisor.processes())
        except (OSError, RpcError) as error:
            if not self.is_stop_requested:
                log.warning("ended_programs_unknown", why=str(error)[:200])


def supervisor_socket() -> Path:
    """supervisord first binds the socket's name with its pid appended, which must fit too."""
    return environment.socket_path("supervisor.sock.1234567").with_name("supervisor.sock")


def embedded_redis() -> dict[str, RedisServer]:
    """The Redis servers that `up` must run, because no variable names a server."""
    return {
        f"redis-{role.name}": RedisServer(
            Path(settings.STATE_DIR) / f"redis-{role.name}",
            environment.socket_path(f"{role.name}.sock"),
            appendonly=role.is_truth,
        )
        for role in redis_roles()
        if role.is_embedded
    }


def web(host: str, port: int, workers: int) -> Program:
    """The web server. A stop lets it answer the requests that it has read."""
    return Program(
        "web",
        [
            *(sys.executable, "-m", "msgplatform.doors.web"),
            *("--host", host, "--port", str(port), "--workers", str(workers)),
            *("--drain-seconds", str(_DRAIN_SECONDS)),
            *("--handover", str(environment.socket_path("web.1234567").with_name("web"))),
        ],
        _WEB,
        stop_seconds=_STOP_SECONDS,
        is_of_release=True,
    )


def daemons(processes: Mapping[str, int]) -> list[Program]:
    """The daemons of every registered flow, and the daemon of bulk jobs. `processes` gives the
    number of processes of a command. Raises Refused for an unknown command."""
    daemons_of_flows = [daemon for flow in flows.all() for daemon in flow.daemons]
    daemons_of_flows.append(structs.replace(BULK, priority=_BULK))
    commands = [daemon.command for daemon in daemons_of_flows]
    if unknown := sorted(processes.keys() - set(commands)):
        raise Refused(f"There is no daemon {unknown[0]}; use one of: {', '.join(commands)}")
    return [
        structs.replace(_program(daemon), processes=processes.get(daemon.command, 1))
        for daemon in daemons_of_flows
    ]


def own_processes() -> list[Program]:
    """The own processes that flows need now. Raises errors of the database."""
    processes = [daemon for flow in flows.all() for daemon in flow.own_processes()]
    return [structs.replace(_program(daemon), comes_and_goes=True) for daemon in processes]


def _program(daemon: Daemon) -> Program:
    command = [sys.executable, "-m", "msgplatform", daemon.command, *daemon.arguments]
    return Program(
        daemon.name,
        [*command, "--drain-seconds", str(_DRAIN_SECONDS)],
        daemon.priority,
        stop_seconds=daemon.stop_seconds,
        is_of_release=True,
    )
