"""Looks after the platform itself: programs that are silent, a Redis that is away, work that waits.

Every daemon has it beside its loop, so that whichever lives can tell of those that do not; the one
that has the lease looks for all. Without the work Redis nobody has it, and each looks at that.
An alert is a row: what the database being away needs, `/metrics` and the log say.
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
from msgplatform.core.daemons.away import AWAY
from msgplatform.core.daemons.heartbeats import Heartbeat
from msgplatform.core.daemons.lease import Lease
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.daemons.timer import Every

log = logging.get(__name__)

SILENT, REDIS, BACKLOG = "platform.silent", "platform.redis", "platform.backlog"
LOOK_SECONDS = 15.0
_LEASE = Lease(work_redis, "platform:watch", 3 * LOOK_SECONDS)
# role → unix seconds of its last heartbeat that was seen; programs that never ran are not missed.
_SEEN = "platform:seen"


class Watch:
    """What one process knows from look to look. `clock` gives seconds that do not go back."""

    def __init__(self) -> None:
        self._me = f"{os.getpid()}-{uuid.uuid4().hex[:12]}"
        self._next = Every(LOOK_SECONDS)
        self._next.restart()  # a start is no trouble
        # Since when this process has found it missing whenever it looked.
        self._silent: dict[str, float] = {}
        self._away: set[str] = set()
        self._without_database = False

    def turn(self) -> None:
        """Look when it is time."""
        if self._next.take():
            self.look()

    def look(self) -> None:
        """Raise what holds, resolve what is over, whichever of it this process can say."""
        if not self._database_answers():
            return
        try:
            if not _LEASE.hold(self._me):
                self._silent.clear()
                self._away.clear()
                return
            beats = heartbeats.alive()
        except RedisError as error:
            self._silent.clear()
            self._tell_of_redis({WORK.name: error}, only=WORK.name)
            return
        self._tell_of_redis(_away())
        self._tell_of_programs(beats)
        tell_of_backlogs()

    def _database_answers(self) -> bool:
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
        except AWAY as error:
            if not self._without_database:
                log.error("database_away", why=str(error)[:200])
            self._without_database = True
            return False
        if self._without_database:
            log.warning("database_back")
        self._without_database = False
        return True

    def _tell_of_redis(self, away: dict[str, RedisError], only: str = "") -> None:
        """At the second look that finds it away: a restart takes less than the time between two."""
        undecided = {_key(REDIS, role) for role in away}
        if only:
            others = {role.name for role in flows.redis_roles()} - {only}
            undecided |= {_key(REDIS, role) for role in others}
        holding = [_of_redis(role, error) for role, error in away.items() if role in self._away]
        self._away = set(away)
        alerts.reconcile([REDIS], holding, undecided)

    def _tell_of_programs(self, beats: Collection[Heartbeat]) -> None:
        """A program is missed by what this process saw itself: Redis may have been away before."""
        expected, now = flows.roles(), time.monotonic()
        latest: dict[str, float] = {}
        for beat in beats:
            latest[beat.role] = max(beat.at, latest.get(beat.role, 0.0))
        missing = expected - latest.keys()
        self._silent = {role: self._silent.get(role, now) for role in missing}
        seen = _seen({role: at for role, at in latest.items() if role in expected})
        late = [
            _of_program(role, seen[role])
            for role, since in sorted(self._silent.items())
            if role in seen and now - since >= settings.ALERT_SILENT_SECONDS
        ]
        alerts.reconcile([SILENT], late, {_key(SILENT, role) for role in missing})


def watch() -> ThreadLoop:
    """A thread of its own: a database that hangs holds up no work."""
    return ThreadLoop("watch", Watch().turn, every=LOOK_SECONDS / 3, longest_pause=LOOK_SECONDS)


def redis_answers() -> dict[str, bool]:
    """Name of each Redis that the platform uses → whether it answers now."""
    away = _away()
    return {role.name: role.name not in away for role in flows.redis_roles()}


def tell_of_backlogs() -> None:
    """An alert for each queue in which something has been due for too long."""
    for flow in flows.all():
        try:
            holding = list(_late(flow))
        except AWAY as error:
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
                f"It has waited since {_shown(wait.since)}. See in the console if the programs "
                "run and get through; start more of them when all are busy.",
            )


def _away() -> dict[str, RedisError]:
    away = {}
    for role in flows.redis_roles():
        try:
            role.client().ping()
        except RedisError as error:
            away[role.name] = error
    return away


def _of_redis(name: str, error: RedisError) -> Condition:
    (variable,) = (role.variable for role in flows.redis_roles() if role.name == name)
    return Condition(
        _key(REDIS, name),
        f"The Redis of {variable} does not answer",
        f"{str(error)[:500]} What needs it waits, and goes on by itself when it is back.",
    )


def _seen(latest: dict[str, float]) -> dict[str, float]:
    """Remember these; when each program was seen last, as far back as Redis knows."""
    client = work_redis()
    if latest:
        client.hset(_SEEN, mapping=latest)  # type: ignore[arg-type]
    rows: dict[bytes, bytes] = client.hgetall(_SEEN)  # type: ignore[assignment]
    return {role.decode(): float(at) for role, at in rows.items()}


def _of_program(role: str, at: float) -> Condition:
    return Condition(
        _key(SILENT, role),
        f"run_{role} does not run",
        f"Its last heartbeat was at {_shown(datetime.fromtimestamp(at, UTC))}. What it does waits: "
        f"start it again (manage.py run_{role}), or see in its log why it ends.",
    )


def _key(kind: str, which: str) -> str:
    return f"{kind}:{which}"


def _shown(at: datetime) -> str:
    return timezone.localtime(at).strftime("%Y-%m-%d %H:%M %Z")
