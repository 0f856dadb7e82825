"""Every daemon runs the watch beside its loop; the daemon that holds the lease looks for all.

A program does not work if it is silent, ends again and again, or fails at every turn; programs of
two releases run only for the time of an update.
"""

import os
import time
import uuid
from collections.abc import Collection, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime

from django.conf import settings
from django.utils.translation import gettext_noop as _

from msgplatform import __version__
from msgplatform.core import alerts, logging
from msgplatform.core.alerts import Condition, moment
from msgplatform.core.connections import WORK, RedisError, briefly, numbers_of, write_into_full
from msgplatform.core.daemons import exits, heartbeats
from msgplatform.core.daemons.exits import Exits
from msgplatform.core.daemons.heartbeats import Heartbeat
from msgplatform.core.daemons.lease import Lease
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.daemons.timer import Every
from msgplatform.core.data import server
from msgplatform.core.errors import UNAVAILABLE
from msgplatform.core.flows.programs import program_roles
from msgplatform.core.lazy_text import lazy_message
from msgplatform.monitor import watch as kinds
from msgplatform.monitor.watch import LOOK_SECONDS, key, of_flows, servers
from msgplatform.monitor.watch.servers import ClusterOfDatabases, Disks
from msgplatform.monitor.watch.unread import Errors, UnreadAlerts, noting

log = logging.get(__name__)

# role → unix seconds of the last heartbeat seen. A program that never ran is not reported.
_SEEN = "platform:seen"
# Seconds in which every turn of a program failed; seconds of one turn, which may run several slow
# statements.
STANDSTILL_SECONDS, HANG_SECONDS = 60.0, 180.0
# The holder may miss two looks before another process takes over.
_LEASE = Lease(WORK.client, "platform:watch", 3 * LOOK_SECONDS)


class Programs:
    """The programs that this process has found silent, and since when."""

    def __init__(self) -> None:
        # Role → monotonic time of the first look that found no heartbeat of the program.
        self._silent: dict[str, float] = {}
        # Monotonic time of the first look that found programs of several releases; 0: of one.
        self._mixed_since = 0.0

    def report(self, beats: Collection[Heartbeat]) -> None:
        """An alert for each program that is silent, ends again and again, or hangs. Silence counts
        from this process's first look, because Redis may have been unavailable before."""
        roles, now = program_roles(), time.monotonic()
        latest = {beat.role: beat.at for beat in sorted(beats, key=lambda beat: beat.at)}
        missing_roles = roles - latest.keys()
        self._silent = {role: self._silent.get(role, now) for role in missing_roles}
        if fields := [part for role in roles & latest.keys() for part in (role, latest[role])]:
            write_into_full(WORK.client(), "HSET", _SEEN, *fields)
        last_beats = numbers_of(WORK.client().hgetall(_SEEN))  # type: ignore[arg-type]
        exits_by_role = exits.of_platform()
        silent_roles = exits_by_role.keys() | {
            role
            for role, since in self._silent.items()
            if role in last_beats and now - since >= settings.ALERT_SILENT_SECONDS
        }
        conditions = [_silence(role, last_beats, exits_by_role) for role in sorted(silent_roles)]
        beats_at_rest = {beat.role: beat for beat in beats if stands_still(beat)}
        conditions += [
            _standstill(beats_at_rest[role]) for role in sorted(beats_at_rest.keys() - silent_roles)
        ]
        missing_keys = {key(kinds.SILENT, role) for role in missing_roles}
        alerts.reconcile([kinds.SILENT], conditions, missing_keys.__contains__)

    def report_releases(self, beats: Collection[Heartbeat]) -> None:
        """An alert if programs of several releases run for longer than an update takes."""
        roles_by_release = heartbeats.roles_by_release(beats)
        now, is_mixed = time.monotonic(), len(roles_by_release) > 1
        self._mixed_since = (self._mixed_since or now) if is_mixed else 0.0
        programs = [f"{name}: {', '.join(roles)}" for name, roles in roles_by_release.items()]
        condition = Condition.of(
            key(kinds.RELEASES, "programs"),
            _("Programs of several releases run"),
            _("%(programs)s. Finish the update, or go back: manage.py update --back."),
            programs="; ".join(programs)[:1000],
        )
        is_lasting = is_mixed and now - self._mixed_since >= settings.ALERT_MIXED_SECONDS
        alerts.reconcile([kinds.RELEASES], [condition] if is_lasting else [], lambda _key: is_mixed)


def stands_still(beat: Heartbeat) -> bool:
    since, _part, why = beat.standstill
    return since > 0 and beat.at - since >= (STANDSTILL_SECONDS if why else HANG_SECONDS)


def _standstill(beat: Heartbeat) -> Condition:
    """The condition for one process. One of the role's processes is enough for an alert, because it
    may own queues that no other process serves."""
    since, part, why = beat.standstill
    return Condition.of(
        key(kinds.SILENT, beat.role),
        _("%(program)s runs, and its work stands still"),
        _("Process %(pid)d on %(host)s (%(part)s) has finished nothing since %(since)s: %(why)s"),
        program=beat.program, pid=beat.pid, host=beat.host, part=part,
        since=moment(datetime.fromtimestamp(since, UTC)),
        why=why or lazy_message("one turn of its work does not end."),
    )  # fmt: skip


def _silence(
    role: str, last_beats: Mapping[str, float], exits_by_role: Mapping[str, Exits]
) -> Condition:
    """The condition for a program that ends again and again, or sends no heartbeats."""
    if role in exits_by_role:
        text = lazy_message(
            "%(exits)s Its work waits. Its log on %(host)s has more.",
            exits=exits_by_role[role].text, host=exits_by_role[role].host,
        )  # fmt: skip
        return Condition(key(kinds.SILENT, role), exits_by_role[role].subject, text)
    return Condition.of(
        key(kinds.SILENT, role),
        _("run_%(role)s does not run, or hangs"),
        _(
            "Its last heartbeat was at %(at)s, and its work waits. If its process is there, it "
            "hangs: manage.py up ends it after a minute; elsewhere end it (kill -9). Start it "
            "again (manage.py run_%(role)s) where nothing does that by itself; its log says why it "
            "ended."
        ),
        at=moment(datetime.fromtimestamp(last_beats[role], UTC)),
        role=role,
    )


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
        self._senders = [make() for make in alerts.sender_makers]
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
                self._programs, self._database = Programs(), ClusterOfDatabases()
                self._disks.forget()
                self._unavailable.clear()
                return
            beats = heartbeats.alive()
        except RedisError as error:
            self._may_send = True
            # Without heartbeats the silence of programs cannot be measured.
            self._programs = Programs()
            self._report_redis({WORK.name: error}, only=WORK.name)
            return
        errors: Errors = {}
        with noting(errors, [kinds.REDIS]):
            self._report_redis(servers.unavailable())
        # This look has already waited for a hanging server. Without short time limits the lease
        # would end during the look, and another process would begin anew.
        with briefly() if self._unavailable else nullcontext():
            with noting(errors, []):
                _LEASE.hold(self._me)
            with noting(errors, [kinds.MEMORY]):
                servers.report_memory()
            with noting(errors, [kinds.TRACES]):
                servers.report_traces()
            with noting(errors, [kinds.IDS]):
                servers.report_id_nodes()
            with noting(errors, [kinds.DISK]):
                self._disks.report(beats)
            with noting(errors, [kinds.SILENT]):
                self._programs.report(beats)
            with noting(errors, [kinds.RELEASES]):
                self._programs.report_releases(beats)
            with noting(errors, [kinds.WRITERS, kinds.GALERA]):
                self._database.report()
            errors |= of_flows.report_backlogs()
            of_flows.note_backlogs()
            errors |= of_flows.report_failures()
            errors |= of_flows.report_conditions()
            # During an update programs of the other release raise kinds of their own.
            if all(beat.release == __version__ for beat in beats):
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
            server.report(self._role)
        return True

    def _report_redis(self, errors: Mapping[str, RedisError], only: str = "") -> None:
        servers.report_unavailable(errors, self._unavailable, only)
        self._unavailable = set(errors)


def watch(role: str) -> ThreadLoop:
    """The watch in a thread of its own, so that a hanging database does not delay the program.
    `role` is the program's."""
    return ThreadLoop("watch", Watch(role).turn, every=server.REPORT_SECONDS)


def is_held() -> bool:
    """True if a program watches the platform now. Raises RedisError."""
    return bool(WORK.client().exists(_LEASE.key))
