"""Incidents: what goes wrong with a running platform, for each kind of alert, and its repair.

An incident is a generator that runs in a process of the platform (not in a program): up to its
`yield` it lets something go wrong, afterwards it repairs that. What needs processes to be killed is
in `stage.py`.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass

from django.db import connection

Places = Mapping[str, str]  # addresses of what the platform speaks to
Course = Generator[None, None, None]


@dataclass(frozen=True)
class Incident:
    """`says` is a regular expression of the alert's subject and text: what answer came, what waits.

    An alert about an event that is over, such as a request that nobody can read, is resolved by a
    person. `act` 2 begins when everything of the first is over.
    """

    kind: str
    says: str
    course: Callable[[Places], Course]
    is_for_person: bool = False
    act: int = 1


INCIDENTS: dict[str, Incident] = {}
_running: dict[str, Course] = {}


def incident(
    kind: str, says: str, is_for_person: bool = False, act: int = 1
) -> Callable[[Callable[[Places], Course]], Callable[[Places], Course]]:
    """Declare the incident of this kind of alert."""

    def declare(course: Callable[[Places], Course]) -> Callable[[Places], Course]:
        assert kind not in INCIDENTS, kind
        INCIDENTS[kind] = Incident(kind, says, course, is_for_person, act)
        return course

    return declare


def happen(places: Places, act: int) -> None:
    """Let all of this act happen."""
    for kind, one in INCIDENTS.items():
        if one.act == act:
            _running[kind] = one.course(places)
            next(_running[kind])


def repair() -> None:
    """Repair what has happened."""
    while _running:
        next(_running.popitem()[1], None)


def refuse(event: str, table: str, when: str = "1", name: str = "") -> Callable[[], None]:
    """The database refuses this change (`DELETE`, `INSERT`) of a table's rows, until what is
    returned is called."""
    name = f"refused_{name or table}_{event.lower()}"
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE TRIGGER {name} BEFORE {event} ON {table} WHEN {when} "
            "BEGIN SELECT RAISE(ABORT, 'the table is read-only'); END"
        )

    def allow() -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP TRIGGER {name}")

    return allow
