"""Make a database that is given by URL at run time a connection of Django's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import dj_database_url
from django.conf import settings
from django.db import connections

from msgplatform.core.errors import InvalidInput
from msgplatform.env import MYSQL_OPTIONS

# As for our own, where no gap locks hold up inserts of other programs, nobody waits long for the
# locks of others, and a frozen process releases its own; only less patient with a silent server.
_MYSQL_WRITER: dict[str, Any] = {**MYSQL_OPTIONS, "read_timeout": 30, "write_timeout": 30}
# The file is somebody else's: its journal mode stays what its owner chose.
_SQLITE_WRITER: dict[str, Any] = {"transaction_mode": "IMMEDIATE", "timeout": 20}
_ALLOWED_OPTIONS = frozenset({"unix_socket", "ssl", "ssl_mode"})
_HINT = "use mysql://user:password@host:3306/name or sqlite:////path/to/file"
_NO_CLIENT = (
    "a MySQL or MariaDB server needs mysqlclient, which is not installed:"
    " python3 deploy/bootstrap.py platform mysql"
)


def configuration(url: str, field: str = "database") -> dict[str, Any]:
    """Django's DATABASES entry for a URL; OPTIONS holds what the URL's query says.

    Opens no connection. Raises InvalidInput for `field`, with a sentence that does not repeat the
    URL, which may hold a password.
    """
    if url.startswith("mariadb://"):
        url = "mysql" + url.removeprefix("mariadb")
    if not url.startswith(("mysql://", "sqlite:///")):
        raise InvalidInput(f"the database's URL cannot be used: {_HINT}", field)
    try:
        config: dict[str, Any] = dict(dj_database_url.parse(url))
    except (ValueError, dj_database_url.ParseError):
        raise InvalidInput(f"the database's URL cannot be read: {_HINT}", field) from None
    if not config.get("NAME"):
        raise InvalidInput(f"the database's URL names no database: {_HINT}", field)
    if is_mysql(config) and find_spec("MySQLdb") is None:
        raise InvalidInput(_NO_CLIENT, field)
    config["OPTIONS"] = dict(config.get("OPTIONS") or {})
    config["CONN_MAX_AGE"] = 60
    config["CONN_HEALTH_CHECKS"] = True
    return config


def for_writing(url: str, field: str = "database") -> dict[str, Any]:
    """Like `configuration`, with the options for writing into somebody else's database."""
    config = configuration(url, field)
    options = _MYSQL_WRITER if is_mysql(config) else _SQLITE_WRITER
    config["OPTIONS"] = {**options, **config["OPTIONS"]}
    return config


def refuse_unsafe(config: Mapping[str, Any], field: str = "database") -> None:
    """Check what `configuration` made of a URL that a person typed into the console.

    Raises InvalidInput for the platform's own file, and for driver options that could read files of
    this machine or undo the options set here.
    """
    if unknown := sorted(set(config["OPTIONS"]) - _ALLOWED_OPTIONS):
        raise InvalidInput(
            f"the database's URL has options that are not allowed: {', '.join(unknown)}", field
        )
    if is_mysql(config):
        return
    path = os.path.realpath(config["NAME"])
    own = [each["NAME"] for each in settings.DATABASES.values() if not is_mysql(each)]
    if path in map(os.path.realpath, own):
        raise InvalidInput("this file is the platform's own database", field)


def is_mysql(config: Mapping[str, Any]) -> bool:
    """True if an entry is for a MySQL or MariaDB server."""
    return str(config["ENGINE"]).endswith("mysql")


def add(alias: str, config: Mapping[str, Any]) -> str:
    """Make the database known to Django as `alias`, and return that."""
    # Django fills in the other settings of a connection only for a set that has a default.
    complete_settings = connections.configure_settings({"default": dict(config)})
    connections.settings[alias] = complete_settings["default"]
    return alias
