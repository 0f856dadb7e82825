"""The event types that are counted one by one: the entries of the catalogue.

A business system may publish under any name, so all others are counted together: there are never
more counters than people have set up.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgplatform.core.daemons.snapshot import Snapshot
from notify.models import EventType

# The subject of the counters of all event types that the catalogue does not have.
OTHERS = -(2**62)
# Seconds until a new catalogue entry has a counter of its own.
REFRESH_SECONDS = 30.0


class CatalogueSubjects(Snapshot[Mapping[tuple[int, str], int]]):
    """Subjects of counters, by (system, event type); system 0 for a shared entry. They are the
    negative ids of entries: those of subscriptions are positive."""

    def __init__(self) -> None:
        super().__init__({}, REFRESH_SECONDS)

    def load(self) -> Mapping[tuple[int, str], int]:
        rows = EventType.objects.order_by().values_list("owner", "name", "id")
        return {(owner, name): -pk for owner, name, pk in rows}

    def subject(self, biz: int, event_type: str) -> int:
        """A system's own entry goes before a shared one."""
        subjects = self.known
        return subjects.get((biz, event_type)) or subjects.get((0, event_type), OTHERS)
