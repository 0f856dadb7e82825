"""The business system's database as a connection of this process, given by URL at run time."""

from __future__ import annotations

from typing import Any

from msgplatform.core.data import databases

ALIAS = "outbox"
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
    config = databases.configuration(url)
    options = _MYSQL if databases.is_mysql(config) else _SQLITE
    config["OPTIONS"] = {**options, **config["OPTIONS"]}
    return databases.add(alias, config)
