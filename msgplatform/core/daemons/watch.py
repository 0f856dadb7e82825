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
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import connection
from django.utils import timezone
from django.utils.translation import gettext_noop as _

from msgplatform.core import alerts, flows, logging
from msgplatform.core.alerts import Condition
from msgplatform.core.connections import WORK, RedisError, work_redis
from msgplatform.core.daemons import backlogs, heartbeats
from msgplatform.core.daemons.heartbeats import Heartbeat
from msgplatform.core.daemons.lease import Lease
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.daemons.timer import Every
from msgplatform.core.errors import UNAVAILABLE
from msgplatform.core.said import say

log = logging.get(__name__)

SILENT, REDIS, BACKLOG = "platform.silent", "platform.redis", "platform.backlog"
GIVEN_UP = "given_up"  # of a flow: notify.given_up
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
        note_backlogs()
        report_given_up()
        report_conditions()

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
                say(_("The Redis of %(variable)s does not answer"), variable=variables[name]),
                say(
                    _("%(error)s Programs that need it wait, and go on when it answers again."),
                    error=str(error)[:500],
                ),
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
                say(_("run_%(role)s does not run"), role=role),
                say(
                    _(
                        "Its last heartbeat was at %(at)s. Its work waits: start it again "
                        "(manage.py run_%(role)s), or see in its log why it ends."
                    ),
                    at=_shown(datetime.fromtimestamp(seen[role], UTC)),
                    role=role,
                ),
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
        with _left_at_errors(kinds := [_key(BACKLOG, flow.name)]):
            alerts.reconcile(kinds, list(_late(flow)))


def note_backlogs() -> None:
    """For the overview's curves. A flow whose servers do not answer leaves a gap."""
    with _left_at_errors(["backlogs"]):
        statuses = {flow.name: flow.status() for flow in flows.all()}
        backlogs.note({name: one.backlog for name, one in statuses.items() if not one.problem})


def _late(flow: flows.Flow) -> Iterator[Condition]:
    minutes = settings.ALERT_BACKLOG_MINUTES
    for wait in flow.waits() if minutes else ():
        if timezone.now() - wait.since > timedelta(minutes=minutes):
            yield Condition(
                f"{_key(BACKLOG, flow.name)}:{wait.which}",
                say(
                    _("%(flow)s: %(what)s has waited for more than %(minutes)s minutes"),
                    flow=flow.title,
                    what=wait.what,
                    minutes=f"{minutes:g}",
                ),
                say(
                    _(
                        "It has waited since %(since)s. See in the console whether the programs "
                        "run and keep up; start more of them if all are busy."
                    ),
                    since=_shown(wait.since),
                ),
            )


def report_given_up() -> None:
    """An alert for each place at which messages were given up, until they were sent again or
    somebody acknowledged them."""
    for flow in flows.all():
        if flow.given_up_alert:
            continue
        with _left_at_errors(kinds := [f"{flow.name}.{GIVEN_UP}"]):
            failures = flow.failures()
            # An open alert may be about a place that the list has no room for.
            undecided = _Every() if len(failures) >= flows.MOST_FAILURES else ()
            alerts.reconcile(kinds, list(_given_up(flow, failures)), undecided)


def report_conditions() -> None:
    """What flows ask the watch to look at."""
    for flow in flows.all():
        if flow.watched_alerts:
            with _left_at_errors(flow.watched_alerts):
                alerts.reconcile(flow.watched_alerts, list(flow.conditions()))


@contextmanager
def _left_at_errors(kinds: Collection[str]) -> Iterator[None]:
    """An error leaves alerts of these kinds as they are; other flows are looked at all the same."""
    try:
        yield
    except UNAVAILABLE as error:
        log.warning("conditions_not_read", kinds=list(kinds), why=str(error)[:200])
    except Exception:
        log.exception("conditions_not_read", kinds=list(kinds))


class _Every(Container[str]):
    """Holds every key."""

    def __contains__(self, key: object) -> bool:
        return True


def _given_up(flow: flows.Flow, failures: Iterable[flows.Failure]) -> Iterator[Condition]:
    places: dict[int, list[flows.Failure]] = defaultdict(list)
    for failure in failures:
        places[failure.subject].append(failure)
    for subject, found in places.items():
        since = min(failure.since for failure in found)
        total = sum(failure.count for failure in found)
        answers = ", ".join(f"{failure.answer} ({failure.count})" for failure in found[:5])
        yield Condition(
            f"{flow.name}.{GIVEN_UP}:{subject}",
            say(
                _("%(flow)s: messages were given up: %(where)s"),
                flow=flow.title,
                where=found[0].where,
            ),
            say(
                _(
                    "Messages: %(count)d, since %(since)s: %(answers)s. They are not sent again by "
                    "themselves: send them again or acknowledge them on Failures."
                ),
                count=total,
                since=_shown(since),
                answers=answers,
            ),
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
