"""The business system's database as a connection of this process, given by URL at run time."""

from __future__ import annotations

from typing import Any

import dj_database_url
from django.db import connections

from msgplatform.core.errors import InvalidInput

ALIAS = "outbox"
_HINT = "use mysql://user:password@host:3306/name or sqlite:////path/to/file"
_MYSQL: dict[str, Any] = {
    "charset": "utf8mb4",
    # No gap locks: the producers' inserts are not held up by the Agent's statements.
    "isolation_level": "read committed",
    # Times are UTC here whatever the server's zone. A producer may hold locks for long; the Agent
    # would rather come back than wait.
    "init_command": "SET time_zone='+00:00', innodb_lock_wait_timeout=5, "
    "sql_mode='STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'",
    "connect_timeout": 5,
    "read_timeout": 30,
    "write_timeout": 30,
}
# The file is somebody else's: its journal mode stays what its owner chose.
_SQLITE: dict[str, Any] = {"transaction_mode": "IMMEDIATE", "timeout": 20}


def add_database(url: str, alias: str = ALIAS) -> str:
    """Make the database of `url` known to Django as `alias`, and return that.

    Opens no connection. Raises InvalidInput with a sentence that does not repeat the URL, which
    may hold a password.
    """
    if url.startswith("mariadb://"):
        url = "mysql" + url.removeprefix("mariadb")
    if not url.startswith(("mysql://", "sqlite:///")):
        raise InvalidInput(f"the database's URL cannot be used: {_HINT}", "database")
    try:
        config: dict[str, Any] = dict(dj_database_url.parse(url))
    except (ValueError, dj_database_url.ParseError):
        raise InvalidInput(f"the database's URL cannot be read: {_HINT}", "database") from None
    if not config.get("NAME"):
        raise InvalidInput(f"the database's URL names no database: {_HINT}", "database")
    options = _MYSQL if config["ENGINE"].endswith("mysql") else _SQLITE
    config["OPTIONS"] = {**options, **(config.get("OPTIONS") or {})}
    config["CONN_MAX_AGE"] = 60
    config["CONN_HEALTH_CHECKS"] = True
    # Django fills in the other settings of a connection only for a set that has a default.
    connections.settings[alias] = connections.configure_settings({"default": config})["default"]
    return alias
