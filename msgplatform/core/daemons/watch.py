"""Watches the platform itself: silent programs, unavailable Redis servers, work that waits.

Every daemon runs the watch beside its loop, so that those that live can report those that do not;
the one that holds the lease looks for all. Without the work Redis nobody can hold the lease, and
each daemon reports that Redis. An alert is a row, so an unavailable database raises none:
`/metrics` and the log report it.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import connection
from django.utils import timezone

from msgplatform.core import alerts, flows, logging
from msgplatform.core.alerts import Condition
from msgplatform.core.connections import WORK, RedisError, work_redis
from msgplatform.core.daemons import heartbeats
from msgplatform.core.daemons.heartbeats import Heartbeat
from msgplatform.core.daemons.lease import Lease
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.daemons.timer import Every
from msgplatform.core.errors import UNAVAILABLE

log = logging.get(__name__)

SILENT, REDIS, BACKLOG = "platform.silent", "platform.redis", "platform.backlog"
LOOK_SECONDS = 15.0
# The holder may miss two looks before another process takes over.
_LEASE = Lease(work_redis, "platform:watch", 3 * LOOK_SECONDS)
# role → unix seconds of the last heartbeat seen. A program that never ran is not reported.
_SEEN = "platform:seen"


class Watch:
    """What one process remembers from one look to the next. Only the watch's thread uses it."""

    def __init__(self) -> None:
        self._me = f"{os.getpid()}-{uuid.uuid4().hex[:12]}"
        self._next = Every(LOOK_SECONDS)
        self._next.restart()  # the first look comes when the other programs had time to start
        # Role → since when (monotonic) every look of this process has found no heartbeat of it.
        self._silent: dict[str, float] = {}
        # Names of the Redis servers that the last look found unavailable.
        self._unavailable: set[str] = set()
        self._without_database = False

    def turn(self) -> None:
        """Look when it is time."""
        if self._next.take():
            self.look()

    def look(self) -> None:
        """Raise alerts for what holds now and resolve those that are over, as far as this process
        can tell."""
        if not self._database_answers():  # no alert can be stored, so there is nothing to look for
            return
        try:
            if not _LEASE.hold(self._me):
                # Another process looks. If the lease comes to us, we begin with our own looks.
                self._silent.clear()
                self._unavailable.clear()
                return
            beats = heartbeats.alive()
        except RedisError as error:
            # Without heartbeats nothing is known of programs: their silence is counted anew.
            self._silent.clear()
            self._report_redis({WORK.name: error}, only=WORK.name)
            return
        self._report_redis(_unavailable())
        self._report_programs(beats)
        report_backlogs()

    def _database_answers(self) -> bool:
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
        except UNAVAILABLE as error:
            if not self._without_database:
                log.error("database_away", why=str(error)[:200])
            self._without_database = True
            return False
        if self._without_database:
            log.warning("database_back")
        self._without_database = False
        return True

    def _report_redis(self, unavailable: dict[str, RedisError], only: str = "") -> None:
        """An alert at the second look that finds a server unavailable: a restart takes less than
        the time between two looks. `only` is the one server that was asked, '' when all were."""
        variables = {role.name: role.variable for role in flows.redis_roles()}
        undecided = {_key(REDIS, name) for name in unavailable}
        if only:
            undecided |= {_key(REDIS, name) for name in variables.keys() - {only}}
        holding = [
            Condition(
                _key(REDIS, name),
                f"The Redis of {variables[name]} does not answer",
                f"{str(error)[:500]} Programs that need it wait, and go on when it answers again.",
            )
            for name, error in unavailable.items()
            if name in self._unavailable
        ]
        self._unavailable = set(unavailable)
        alerts.reconcile([REDIS], holding, undecided)

    def _report_programs(self, beats: Collection[Heartbeat]) -> None:
        """An alert for each program that this process itself has found silent for long enough: of
        what was before its first look it knows nothing, since Redis may have been unavailable."""
        expected, now = flows.roles(), time.monotonic()
        latest: dict[str, float] = {}
        for beat in beats:
            latest[beat.role] = max(beat.at, latest.get(beat.role, 0.0))
        missing = expected - latest.keys()
        self._silent = {role: self._silent.get(role, now) for role in missing}
        client = work_redis()
        if known := {role: at for role, at in latest.items() if role in expected}:
            client.hset(_SEEN, mapping=known)  # type: ignore[arg-type]
        rows: dict[bytes, bytes] = client.hgetall(_SEEN)  # type: ignore[assignment]
        seen = {role.decode(): float(at) for role, at in rows.items()}
        late = [
            Condition(
                _key(SILENT, role),
                f"run_{role} does not run",
                f"Its last heartbeat was at {_shown(datetime.fromtimestamp(seen[role], UTC))}. "
                f"Its work waits: start it again (manage.py run_{role}), or see in its log why it "
                "ends.",
            )
            for role, since in sorted(self._silent.items())
            if role in seen and now - since >= settings.ALERT_SILENT_SECONDS
        ]
        alerts.reconcile([SILENT], late, {_key(SILENT, role) for role in missing})


def watch() -> ThreadLoop:
    """A thread of its own: a database that hangs holds up no work."""
    return ThreadLoop("watch", Watch().turn, every=LOOK_SECONDS / 3, longest_pause=LOOK_SECONDS)


def redis_answers() -> dict[str, bool]:
    """Name of each Redis that the platform uses → whether it answers now."""
    unavailable = _unavailable()
    return {role.name: role.name not in unavailable for role in flows.redis_roles()}


def report_backlogs() -> None:
    """An alert for each queue in which something has been due for too long."""
    for flow in flows.all():
        try:
            holding = list(_late(flow))
        except UNAVAILABLE as error:
            log.warning("backlog_not_read", flow=flow.name, why=str(error)[:200])
        except Exception:
            log.exception("backlog_not_read", flow=flow.name)
        else:
            alerts.reconcile([_key(BACKLOG, flow.name)], holding)


def _late(flow: flows.Flow) -> Iterator[Condition]:
    minutes = settings.ALERT_BACKLOG_MINUTES
    for wait in flow.waits() if minutes else ():
        if timezone.now() - wait.since > timedelta(minutes=minutes):
            yield Condition(
                f"{_key(BACKLOG, flow.name)}:{wait.which}",
                f"{flow.title}: {wait.what} has waited for more than {minutes:g} minutes",
                f"It has waited since {_shown(wait.since)}. See in the console whether the "
                "programs run and keep up; start more of them if all are busy.",
            )


def _unavailable() -> dict[str, RedisError]:
    """Name of each Redis that does not answer now → its error."""
    unavailable = {}
    for role in flows.redis_roles():
        try:
            role.client().ping()
        except RedisError as error:
            unavailable[role.name] = error
    return unavailable


def _key(kind: str, which: str) -> str:
    return f"{kind}:{which}"


def _shown(at: datetime) -> str:
    return timezone.localtime(at).strftime("%Y-%m-%d %H:%M %Z")
