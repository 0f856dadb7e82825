"""Programs that do not run: silent for long, or ended by themselves again and again."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from datetime import UTC, datetime

from django.conf import settings
from django.utils.translation import gettext_noop as _

from msgplatform.core import alerts, flows
from msgplatform.core.alerts import Condition
from msgplatform.core.connections import work_redis
from msgplatform.core.daemons import exits
from msgplatform.core.daemons.exits import Exits
from msgplatform.core.daemons.heartbeats import Heartbeat
from msgplatform.core.daemons.watch.kinds import SILENT, key, shown
from msgplatform.core.lazy_text import lazy_message

# role → unix seconds of the last heartbeat seen. A program that never ran is not reported.
_SEEN = "platform:seen"


class Programs:
    """Since when this process has found each program silent."""

    def __init__(self) -> None:
        # Role → since when (monotonic) every look of this process has found no heartbeat of it.
        self._silent: dict[str, float] = {}

    def forget(self) -> None:
        """Nothing is known of programs: their silence is counted anew."""
        self._silent.clear()

    def report(self, beats: Collection[Heartbeat]) -> None:
        """An alert for each program that this process itself has found silent for long enough (of
        what was before its first look it knows nothing, since Redis may have been unavailable), and
        for each that ends again and again."""
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
        last_beats = {role.decode(): float(at) for role, at in rows.items()}
        exits_by_role = exits.of_platform()
        late = {
            role
            for role, since in self._silent.items()
            if role in last_beats and now - since >= settings.ALERT_SILENT_SECONDS
        }
        holding = [
            _condition(role, last_beats, exits_by_role)
            for role in sorted(late | exits_by_role.keys())
        ]
        alerts.reconcile([SILENT], holding, {key(SILENT, role) for role in missing})


def _condition(
    role: str, last_beats: Mapping[str, float], exits_by_role: Mapping[str, Exits]
) -> Condition:
    if role in exits_by_role:
        text = lazy_message(
            _("%(exits)s Its work waits. Its log on %(host)s has more."),
            exits=exits_by_role[role].text, host=exits_by_role[role].host,
        )  # fmt: skip
        subject = lazy_message(
            _("%(program)s ends again and again"), program=exits_by_role[role].program
        )
        return Condition(key(SILENT, role), subject, text)
    text = lazy_message(
        _(
            "Its last heartbeat was at %(at)s. Its work waits: start it again "
            "(manage.py run_%(role)s), or see in its log why it ends."
        ),
        at=shown(datetime.fromtimestamp(last_beats[role], UTC)),
        role=role,
    )
    return Condition(
        key(SILENT, role), lazy_message(_("run_%(role)s does not run"), role=role), text
    )
