"""The whole platform on one machine: which programs run, and what must hold before they start."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from socket import socket
from typing import Self
from xmlrpc.client import Error as RpcError

from django.conf import settings

from msgplatform import env as environment
from msgplatform.core import flows, logging, public_address
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.flows.programs import BULK, Daemon
from msgplatform.core.servers.private_server import RedisServer, private_directory
from msgplatform.operation.supervision import address, preparation
from msgplatform.operation.supervision.config import Program
from msgplatform.operation.supervision.program_watch import ProgramWatch
from msgplatform.operation.supervision.run import Lock, Refused, Supervisor, is_running

log = logging.get(__name__)

__all__ = ["Platform", "Refused", "is_running"]

_REDIS, _WEB, _BULK = 10, 100, 900  # priorities; daemons name their own
_DRAIN_SECONDS = 20
_STOP_SECONDS = _DRAIN_SECONDS + 10  # to drain, and to close connections
_POLL_SECONDS = 0.05
_FOLLOW_SECONDS = 5.0  # how soon a change of own processes takes effect
_WATCH_SECONDS = 1.0
# Programs start when the web server listens, since callers wait for it and not for them; if it does
# not, they start without it.
_WEB_SECONDS = 30.0
_WEB_POLL_SECONDS = 0.1


class Platform:
    """Redis if none is configured, the web server and every flow's daemons, supervised.

    `state_dir` must be the settings' STATE_DIR; `url` is the address that people open; `processes`
    says how many processes of a command to run; `reservation` is the socket of `address.hold`, if
    the caller keeps the address already. While the platform runs, it starts and stops the processes
    that subscriptions or gateways have of their own. Call `start` from a thread that stays. Raises
    Refused.
    """

    def __init__(
        self,
        state_dir: Path,
        host: str = "127.0.0.1",
        port: int = 8000,
        env: Mapping[str, str] | None = None,
        workers: int = 1,
        migrate: bool = False,
        processes: Mapping[str, int] | None = None,
        reservation: socket | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        if Path(state_dir) != Path(settings.STATE_DIR):
            raise ValueError(f"{state_dir} is not the settings' STATE_DIR {settings.STATE_DIR}")
        self.state_dir = Path(state_dir)
        self.host, self.port = address.resolve(host, port), port
        self.url = address.public_url(self.host, port)
        self.migrate = migrate
        self.redis = embedded_redis(self.state_dir)
        self._lock = Lock(self.state_dir / "run")
        self._reservation = reservation
        # supervisord first binds the name with its pid appended, and that must fit too.
        longest = environment.socket_path("supervisor.sock.1234567")
        self._supervisor = Supervisor(
            self.state_dir,
            longest.with_name("supervisor.sock"),
            [
                *(Program(name, server.argv, _REDIS) for name, server in self.redis.items()),
                web(self.host, port, workers),
            ],
            {
                **(env or {}),
                "STATE_DIR": str(self.state_dir),
                "PUBLIC_URL": self.url,
                "SANDBOX_URL": address.own_url(self.host, port),
            },
            environment.BASE_DIR,
        )
        self._daemons = daemons(processes or {})
        self._say = say  # sentences for people
        self._program_watch = ProgramWatch(self._supervisor.places.logs, say)
        self._start_time = 0.0  # monotonic; 0.0 once the daemons are started
        self._follower = ThreadLoop("own-processes", self._follow, every=_FOLLOW_SECONDS)
        self._observer = ThreadLoop("program-watch", self._watch_programs, every=_WATCH_SECONDS)

    def start(self) -> Self:
        """Check, prepare the database, start everything. Raises Refused, ServerMissing."""
        private_directory(self.state_dir)
        private_directory(self.state_dir / "run")
        # Before anything is touched: a second `up` must not migrate under the first one.
        self._lock.take()
        try:
            for server in self.redis.values():
                server.prepare()
            self._reservation = self._reservation or address.hold(self.host, self.port)
            preparation.run(self.migrate, self._say)
            public_address.keep_served(self.url)
            self._start_time = time.monotonic()
            self._supervisor.start()
            self._follower.start()
            self._observer.start()
        except BaseException:  # also of a signal: the next `up` must not be refused
            self._release()
            raise
        return self

    def wait_until_it_serves(self, seconds: float) -> bool:
        """True if the web server answers in time and the platform does not stop meanwhile."""
        deadline = time.monotonic() + seconds
        while not address.answers(self.host, self.port):
            if self.stop_requested or time.monotonic() > deadline:
                return False
            if self.wait(_POLL_SECONDS) is not None:
                return False
        return True

    def wait(self, seconds: float | None = None) -> int | None:
        """supervisord's exit code, or None when it still runs after `seconds`."""
        return self._supervisor.wait(seconds)

    def request_stop(self) -> None:
        """For signal handlers: the first call stops in order, the second kills."""
        self._supervisor.request_stop()

    @property
    def stop_requested(self) -> bool:
        return self._supervisor.stop_requested

    @property
    def log(self) -> Path:
        return self._supervisor.places.log

    def stop(self) -> None:
        """Stop everything in order: daemons drain, then web, then Redis."""
        self._follower.stop()  # first, or it would start processes again that are being stopped
        self._observer.stop()
        self._supervisor.stop()
        self._release()

    def _release(self) -> None:
        if self._reservation:
            self._reservation.close()
            self._reservation = None
        self._lock.release()

    def _follow(self) -> float | None:
        """Start the daemons, then start and stop processes as the settings say now, unless
        everything is about to stop."""
        if self.stop_requested or self.wait(0) is not None:
            return None
        try:
            if self._start_time:
                is_late = time.monotonic() - self._start_time > _WEB_SECONDS
                if not is_late and not address.answers(self.host, self.port):
                    return _WEB_POLL_SECONDS
                self._supervisor.follow(self._daemons)
                self._start_time = 0.0
            self._supervisor.follow([*self._daemons, *own_processes()])
        except (OSError, RpcError) as error:
            if not self.stop_requested:
                log.warning("own_processes_wait", why=str(error)[:200])
        return None

    def _watch_programs(self) -> None:
        """Look for programs that crash again and again or hang, unless everything is about to
        stop."""
        if self.stop_requested or self.wait(0) is not None:
            return
        try:
            self._program_watch.look(self._supervisor.processes())
        except (OSError, RpcError) as error:
            if not self.stop_requested:
                log.warning("ended_programs_unknown", why=str(error)[:200])

    def pids(self) -> dict[str, int]:
        """Process name → pid of those that run now."""
        return self._supervisor.pids()


def embedded_redis(state_dir: Path) -> dict[str, RedisServer]:
    """The Redis servers to run ourselves: those that no variable names."""
    return {
        f"redis-{role.name}": RedisServer(
            state_dir / f"redis-{role.name}",
            environment.socket_path(f"{role.name}.sock"),
            appendonly=role.is_truth,
        )
        for role in flows.redis_roles()
        if role.is_embedded
    }


def web(host: str, port: int, workers: int) -> Program:
    """The web server; when it is stopped it answers the requests that it has read."""
    return Program(
        "web",
        [
            *(sys.executable, "-m", "msgplatform.doors.web"),
            *("--host", host, "--port", str(port), "--workers", str(workers)),
            *("--drain-seconds", str(_DRAIN_SECONDS)),
        ],
        _WEB,
        stop_seconds=_STOP_SECONDS,
    )


def daemons(processes: Mapping[str, int]) -> list[Program]:
    """The daemons of every registered flow, and the one that runs bulk jobs, with the number of
    processes that `processes` gives for a command. Raises Refused for an unknown command."""
    daemons_of_flows = [daemon for flow in flows.all() for daemon in flow.daemons]
    daemons_of_flows.append(dataclasses.replace(BULK, priority=_BULK))
    commands = [daemon.command for daemon in daemons_of_flows]
    if unknown := sorted(processes.keys() - set(commands)):
        raise Refused(f"There is no daemon {unknown[0]}; use one of: {', '.join(commands)}")
    return [
        dataclasses.replace(_program(daemon), processes=processes.get(daemon.command, 1))
        for daemon in daemons_of_flows
    ]


def own_processes() -> list[Program]:
    """The further processes that flows need now. Raises errors of the database."""
    processes = [daemon for flow in flows.all() for daemon in flow.own_processes()]
    return [dataclasses.replace(_program(daemon), comes_and_goes=True) for daemon in processes]


def _program(daemon: Daemon) -> Program:
    command = [*environment.MANAGE, daemon.command, *daemon.arguments]
    return Program(
        daemon.name,
        [*command, "--drain-seconds", str(_DRAIN_SECONDS)],
        daemon.priority,
        stop_seconds=daemon.stop_seconds,
    )
