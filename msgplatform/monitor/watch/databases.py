"""The cluster of databases (Galera): programs that write to two servers, missing servers."""

from __future__ import annotations

from msgplatform.core import alerts
from msgplatform.core.alerts import Condition
from msgplatform.core.daemons import writers
from msgplatform.core.data import server
from msgplatform.core.lazy_text import lazy_message
from msgplatform.monitor.watch import GALERA, WRITERS, key

_DATABASE = "database"  # the only subject of both kinds


class ClusterOfDatabases:
    """The state at the last look. An alert needs two looks in a row, because a change of the writer
    or a restart of a server takes less than the time between two looks."""

    def __init__(self) -> None:
        self._kinds_before: set[str] = set()

    def forget(self) -> None:
        """Another process looks, so that the last look of this process is too old."""
        self._kinds_before.clear()

    def report(self) -> None:
        """Raise or resolve the alerts about two writers and about missing servers."""
        conditions: dict[str, Condition] = {}
        programs = writers.programs_by_node()
        if len(programs) > 1:
            places = "; ".join(f"{node}: {', '.join(names)}" for node, names in programs.items())
            conditions[WRITERS] = Condition(
                key(WRITERS, _DATABASE),
                lazy_message("Programs write to several servers of the database"),
                lazy_message(
                    "%(places)s. Locks of rows are of one server, so two programs may do the "
                    "same work. Have every program connect to the one address of HAProxy.",
                    places=places[:1000],
                ),
            )
        state = server.cluster()
        if state is not None and state.size < state.expected:
            conditions[GALERA] = Condition(
                key(GALERA, _DATABASE),
                lazy_message("Servers of the database are missing"),
                lazy_message(
                    "The cluster has %(size)d of %(expected)d servers: it may stop when one "
                    "more fails. Start the others, and see their logs if they do not come back.",
                    size=state.size,
                    expected=state.expected,
                ),
            )
        holding = [conditions[kind] for kind in conditions.keys() & self._kinds_before]
        undecided_keys = {condition.key for condition in conditions.values()}
        self._kinds_before = set(conditions)
        alerts.reconcile([WRITERS, GALERA], holding, undecided_keys)
