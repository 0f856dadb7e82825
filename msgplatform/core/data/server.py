"""The database server behind this process's connections: its address, and whether it works."""

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.utils import ProgrammingError

from msgplatform.core.data import engines
from msgplatform.core.data.engines.contract import Cluster, Fault

_nodes: dict[str, str] = {}  # alias → the server of the newest connection


def ask(using: str = DEFAULT_DB_ALIAS) -> None:
    """Ask the server a question that only a working server answers. Raises OperationalError."""
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
    """`host:port` of the server that this process writes to, by the server's own name; '' before
    the first connection, and for a database in a file."""
    return _nodes.get(DEFAULT_DB_ALIAS, "")


def cluster(using: str = DEFAULT_DB_ALIAS) -> Cluster | None:
    """The server's cluster; None for a single server. Raises OperationalError."""
    return engines.of(using).cluster(connections[using])
