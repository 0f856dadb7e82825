"""Every daemon runs the watch beside its loop; the daemon that holds the lease looks for all."""

from __future__ import annotations

import os
import uuid
from collections.abc import Collection, Mapping
from contextlib import nullcontext

from msgplatform.core import alerts, logging
from msgplatform.core.connections import WORK, RedisError, briefly, work_redis
from msgplatform.core.daemons import heartbeats, writers
from msgplatform.core.daemons.heartbeats import Heartbeat
from msgplatform.core.daemons.lease import Lease
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.daemons.timer import Every
from msgplatform.core.data import server
from msgplatform.core.errors import UNAVAILABLE
from msgplatform.monitor.watch import (
    DISK,
    GALERA,
    IDS,
    LOOK_SECONDS,
    MEMORY,
    REDIS,
    RELEASES,
    SILENT,
    TRACES,
    WRITERS,
    of_flows,
    servers,
)
from msgplatform.monitor.watch.programs import Programs
from msgplatform.monitor.watch.servers import ClusterOfDatabases, Disks
from msgplatform.monitor.watch.unread import Errors, UnreadAlerts, noting

log = logging.get(__name__)

# The holder may miss two looks before another process takes over.
_LEASE = Lease(work_redis, "platform:watch", 3 * LOOK_SECONDS)


class Watch:
    """The state of one process from look to look. Only the watch's thread uses it."""

    def __init__(self, role: str = "") -> None:
        self._role = role  # the program's; '': its database server is not reported
        self._me = f"{os.getpid()}-{uuid.uuid4().hex[:12]}"
        self._next = Every(LOOK_SECONDS)
        self._next.restart()  # other programs may still be starting
        self._programs, self._disks, self._unread = Programs(), Disks(), UnreadAlerts()
        self._database = ClusterOfDatabases()
        # Names of the Redis servers that the last look found unavailable.
        self._unavailable: set[str] = set()
        self._without_database = False
        self._senders = alerts.senders()
        # True if this process holds the lease, or none can: without the work Redis every process
        # sends.
        self._may_send = False

    def turn(self) -> None:
        """Look if a look is due. Ask the database at every turn: this renews a lost connection, and
        reports the server to which this process writes."""
        if self._next.take():
            self.look()
        else:
            self._database_answers()
        if not self._without_database:
            for sender in self._senders:
                sender.turn(self._may_send)

    def look(self) -> None:
        """Raise alerts for the conditions that hold now and resolve all others."""
        if not self._database_answers():  # alerts cannot be stored
            return
        try:
            self._may_send = _LEASE.hold(self._me)
            if not self._may_send:
                # Another process looks. If this process gets the lease, it begins anew.
                self._programs.forget()
                self._database.forget()
                self._disks.forget()
                self._unavailable.clear()
                return
            beats = heartbeats.alive()
        except RedisError as error:
            self._may_send = True
            # Without heartbeats the silence of programs cannot be measured.
            self._programs.forget()
            self._report_redis({WORK.name: error}, only=WORK.name)
            return
        errors: Errors = {}
        with noting(errors, [REDIS]):
            self._report_redis(servers.unavailable())
        # This look has already waited for a hanging server. Without short time limits the lease
        # would end during the look, and another process would begin anew.
        with briefly() if self._unavailable else nullcontext():
            self._look_at_all(beats, errors)

    def _look_at_all(self, beats: Collection[Heartbeat], errors: Errors) -> None:
        """The part of a look that begins with a fresh lease."""
        with noting(errors, []):
            _LEASE.hold(self._me)
        with noting(errors, [MEMORY]):
            servers.report_memory()
        with noting(errors, [TRACES]):
            servers.report_traces()
        with noting(errors, [IDS]):
            servers.report_id_nodes()
        with noting(errors, [DISK]):
            self._disks.report(beats)
        with noting(errors, [SILENT, RELEASES]):
            self._programs.report(beats)
        with noting(errors, [WRITERS, GALERA]):
            self._database.report()
        errors |= of_flows.report_backlogs()
        of_flows.note_backlogs()
        errors |= of_flows.report_failures()
        errors |= of_flows.report_conditions()
        with noting(errors, []):
            of_flows.resolve_undeclared()
        self._unread.report(errors)

    def _database_answers(self) -> bool:
        try:
            server.ask()
        except UNAVAILABLE as error:
            if not self._without_database:
                log.error("database_away", why=str(error)[:200])
            self._without_database = True
            return False
        if self._without_database:
            log.warning("database_back")
        self._without_database = False
        alerts.hand_out_waiting()
        if self._role:
            writers.report(self._role)
        return True

    def _report_redis(self, errors: Mapping[str, RedisError], only: str = "") -> None:
        servers.report_unavailable(errors, self._unavailable, only)
        self._unavailable = set(errors)


def watch(role: str) -> ThreadLoop:
    """The watch in a thread of its own, so that a hanging database does not delay the program.
    `role` is the program's."""
    return ThreadLoop("watch", Watch(role).turn, every=writers.REPORT_SECONDS)


def is_held() -> bool:
    """True if a program watches the platform now. Raises RedisError."""
    return bool(work_redis().exists(_LEASE.key))
