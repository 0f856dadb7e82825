"""The database server behind this process's connections: whether it works, and which one it is."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.utils import ProgrammingError

from msgplatform.core.data.transactions import error_code

# Of a table: a node of Galera without a quorum answers `SELECT 1`, and refuses this (1047).
QUESTION = "SELECT 1 FROM django_migrations LIMIT 1"
NO_SUCH_TABLE = 1146

_nodes: dict[str, str] = {}  # alias → the server of the connection that was made last


def ask(using: str = DEFAULT_DB_ALIAS) -> None:
    """Ask the server what only a server that works answers. Raises OperationalError."""
    connection = connections[using]
    statement = QUESTION if connection.vendor == "mysql" else "SELECT 1"
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            cursor.fetchone()
    except ProgrammingError as error:
        if error_code(error) != NO_SUCH_TABLE:  # before `migrate`
            raise


def note(alias: str, node: str) -> None:
    """Note the server of a new connection."""
    _nodes[alias] = node


def node() -> str:
    """`host:port` of the server that this process writes to, as that server calls itself; '' before
    the first connection, and for a database that is a file."""
    return _nodes.get(DEFAULT_DB_ALIAS, "")


@dataclass(frozen=True)
class Cluster:
    """The state of a cluster (Galera) as one server of it says. `expected` is how many servers its
    configuration names, at least one."""

    state: str  # of this server: "Synced", "Donor/Desynced", "Joined" …
    size: int
    expected: int


def cluster(using: str = DEFAULT_DB_ALIAS) -> Cluster | None:
    """The cluster to which the server belongs; None for a server on its own. Raises
    OperationalError."""
    connection = connections[using]
    if connection.vendor != "mysql":
        return None
    with connection.cursor() as cursor:
        cursor.execute("SHOW GLOBAL STATUS LIKE 'wsrep_%%'", ())
        status = {str(name).lower(): str(value) for name, value in cursor.fetchall()}
        if not status.get("wsrep_cluster_state_uuid", "").strip("0-"):
            return None
        cursor.execute("SELECT @@wsrep_cluster_address")
        (address,) = cursor.fetchone()
    names = address.partition("://")[2].partition("?")[0].split(",")
    return Cluster(
        state=status["wsrep_local_state_comment"],
        size=int(status["wsrep_cluster_size"]),
        expected=len([name for name in names if name]) or 1,
    )
