"""The database server behind this process's connections: whether it works, and which one it is."""

from __future__ import annotations

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.utils import ProgrammingError

from msgplatform.core.data import engines
from msgplatform.core.data.engines.contract import Cluster, Fault

_nodes: dict[str, str] = {}  # alias → the server of the connection that was made last


def ask(using: str = DEFAULT_DB_ALIAS) -> None:
    """Ask the server what only a server that works answers. Raises OperationalError."""
    try:
        with connections[using].cursor() as cursor:
            cursor.execute(engines.of(using).question)
            cursor.fetchone()
    except ProgrammingError as error:
        if engines.fault(error) is not Fault.NO_TABLE:  # before `migrate`
            raise


def note(alias: str, node: str) -> None:
    """Note the server of a new connection."""
    _nodes[alias] = node


def node() -> str:
    """`host:port` of the server that this process writes to, as that server calls itself; '' before
    the first connection, and for a database that is a file."""
    return _nodes.get(DEFAULT_DB_ALIAS, "")


def cluster(using: str = DEFAULT_DB_ALIAS) -> Cluster | None:
    """The cluster to which the server belongs; None for a server on its own. Raises
    OperationalError."""
    return engines.of(using).cluster(connections[using])
