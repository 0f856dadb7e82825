"""Connect Django to a database by a URL that is known only at run time."""

import os
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any
from urllib.parse import unquote

import dj_database_url
from django.conf import settings
from django.db import connections

from msgplatform.core.data import engines
from msgplatform.core.errors import InvalidInput
from msgplatform.env import INSTALL

_ALLOWED_OPTIONS = frozenset({"unix_socket", "ssl", "ssl_mode"})
_HINT = "use mysql://user:password@host:3306/name or sqlite:////path/to/file"
_NO_CLIENT = (
    "a MySQL or MariaDB server needs mysqlclient, which is not installed: "
    + INSTALL.format("mysql")
)


def configuration(url: str, field: str = "database") -> dict[str, Any]:
    """Django's DATABASES entry for a URL; OPTIONS holds what the URL's query says.

    Opens no connection. Raises InvalidInput for `field`, with a sentence that does not repeat the
    URL, which may hold a password.
    """
    if url.startswith("mariadb://"):
        url = "mysql" + url.removeprefix("mariadb")
    # No file, server or client takes a NUL, which %00 stands for.
    if not url.startswith(("mysql://", "sqlite:///")) or "\0" in unquote(url):
        raise InvalidInput(f"the database's URL cannot be used: {_HINT}", field)
    try:
        config: dict[str, Any] = dict(dj_database_url.parse(url))
    except (ValueError, dj_database_url.ParseError):
        raise InvalidInput(f"the database's URL cannot be read: {_HINT}", field) from None
    if not config.get("NAME"):
        raise InvalidInput(f"the database's URL names no database: {_HINT}", field)
    if engines.of_config(config).is_server and find_spec("MySQLdb") is None:
        raise InvalidInput(_NO_CLIENT, field)
    config["OPTIONS"] = dict(config.get("OPTIONS") or {})
    config["CONN_MAX_AGE"] = 60
    config["CONN_HEALTH_CHECKS"] = True
    return config


def for_writing(url: str, field: str = "database") -> dict[str, Any]:
    """Like `configuration`, with the options for writing into the database of another system."""
    config = configuration(url, field)
    config["OPTIONS"] = {**engines.of_config(config).writer_options, **config["OPTIONS"]}
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
    if engines.of_config(config).is_server:
        return
    path = os.path.realpath(config["NAME"])
    files = [
        entry["NAME"]
        for entry in settings.DATABASES.values()
        if not engines.of_config(entry).is_server
    ]
    if path in map(os.path.realpath, files):
        raise InvalidInput("this file is the platform's own database", field)


def add(alias: str, config: Mapping[str, Any]) -> str:
    """Make the database known to Django as `alias`; returns the alias."""
    # Django sets the other settings of a connection only in a dict that has a default database.
    complete_settings = connections.configure_settings({"default": dict(config)})
    connections.settings[alias] = complete_settings["default"]
    return alias
