"""Programs that do not work: silent, ending again and again, or failing at every turn; and programs
of two releases."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from datetime import UTC, datetime

from django.conf import settings

from msgplatform.core import alerts, flows
from msgplatform.core.alerts import Condition
from msgplatform.core.connections import numbers_of, work_redis
from msgplatform.core.daemons import exits, heartbeats
from msgplatform.core.daemons.exits import Exits
from msgplatform.core.daemons.heartbeats import Heartbeat
from msgplatform.core.durations import moment
from msgplatform.core.lazy_text import lazy_message
from msgplatform.monitor.watch import RELEASES, SILENT, key

# role → unix seconds of the last heartbeat seen. A program that never ran is not reported.
_SEEN = "platform:seen"
# Seconds in which every turn of a program failed; seconds of one turn, which may run several slow
# statements.
STANDSTILL_SECONDS, HANG_SECONDS = 60.0, 180.0


class Programs:
    """The programs that this process has found silent, and since when."""

    def __init__(self) -> None:
        # Role → monotonic time of the first look that found no heartbeat of the program.
        self._silent: dict[str, float] = {}
        # Monotonic time of the first look that found programs of several releases; 0: of one.
        self._mixed_since = 0.0

    def forget(self) -> None:
        """Begin anew to measure silence, since this process has not read heartbeats for a while."""
        self._silent.clear()
        self._mixed_since = 0.0

    def report(self, beats: Collection[Heartbeat]) -> None:
        """An alert for each program that is silent, ends again and again, or hangs. Silence counts
        from this process's first look, because Redis may have been unavailable before."""
        roles, now = flows.roles(), time.monotonic()
        latest: dict[str, float] = {}
        for beat in beats:
            latest[beat.role] = max(beat.at, latest.get(beat.role, 0.0))
        missing = roles - latest.keys()
        self._silent = {role: self._silent.get(role, now) for role in missing}
        client = work_redis()
        if beat_times := {role: at for role, at in latest.items() if role in roles}:
            client.hset(_SEEN, mapping=beat_times)  # type: ignore[arg-type]
        rows: dict[bytes, bytes] = client.hgetall(_SEEN)  # type: ignore[assignment]
        last_beats = numbers_of(rows)
        exits_by_role = exits.of_platform()
        late = {
            role
            for role, since in self._silent.items()
            if role in last_beats and now - since >= settings.ALERT_SILENT_SECONDS
        }
        silent_roles = late | exits_by_role.keys()
        holding = [_condition(role, last_beats, exits_by_role) for role in sorted(silent_roles)]
        standing = {beat.role: beat for beat in beats if stands_still(beat)}
        holding += [_standstill(standing[role]) for role in sorted(standing.keys() - silent_roles)]
        alerts.reconcile([SILENT], holding, {key(SILENT, role) for role in missing}.__contains__)
        roles_by_release = heartbeats.roles_by_release(beats)
        is_mixed = len(roles_by_release) > 1
        self._mixed_since = (self._mixed_since or now) if is_mixed else 0.0
        condition = Condition(
            key(RELEASES, "programs"),
            lazy_message("Programs of several releases run"),
            lazy_message(
                "%(programs)s. Finish the update, or go back: manage.py update --back.",
                programs="; ".join(
                    f"{release}: {', '.join(names)}" for release, names in roles_by_release.items()
                )[:1000],
            ),
        )
        is_lasting = is_mixed and now - self._mixed_since >= settings.ALERT_MIXED_SECONDS
        alerts.reconcile([RELEASES], [condition] if is_lasting else [], lambda _key: is_mixed)


def stands_still(beat: Heartbeat) -> bool:
    since, _part, why = beat.standstill
    return since > 0 and beat.at - since >= (STANDSTILL_SECONDS if why else HANG_SECONDS)


def _standstill(beat: Heartbeat) -> Condition:
    """The condition for one process. One of the role's processes is enough for an alert, because it
    may own queues that no other process serves."""
    since, part, why = beat.standstill
    text = lazy_message(
        "Process %(pid)d on %(host)s (%(part)s) has finished nothing since %(since)s, and goes "
            "on trying: %(why)s",
        pid=beat.pid, host=beat.host, part=part, since=moment(datetime.fromtimestamp(since, UTC)),
        why=why or lazy_message("one turn of its work does not end."),
    )  # fmt: skip
    return Condition(
        key(SILENT, beat.role),
        lazy_message("%(program)s runs, and its work stands still", program=beat.program),
        text,
    )


def _condition(
    role: str, last_beats: Mapping[str, float], exits_by_role: Mapping[str, Exits]
) -> Condition:
    if role in exits_by_role:
        text = lazy_message(
            "%(exits)s Its work waits. Its log on %(host)s has more.",
            exits=exits_by_role[role].text, host=exits_by_role[role].host,
        )  # fmt: skip
        return Condition(key(SILENT, role), exits_by_role[role].subject, text)
    text = lazy_message(
        "Its last heartbeat was at %(at)s, and its work waits. If its process is there, it "
        "hangs: manage.py up ends it after a minute; elsewhere end it (kill -9). Start it "
        "again (manage.py run_%(role)s) where nothing does that by itself; its log says why it "
        "ended.",
        at=moment(datetime.fromtimestamp(last_beats[role], UTC)),
        role=role,
    )
    subject = lazy_message("run_%(role)s does not run, or hangs", role=role)
    return Condition(key(SILENT, role), subject, text)
