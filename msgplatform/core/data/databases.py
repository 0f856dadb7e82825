"""Connect Django to a database by a URL that is known only at run time."""

import os
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.db import connections
from django.utils.translation import gettext as _

from msgplatform import env
from msgplatform.core.data import engines
from msgplatform.core.errors import InvalidInput

_ALLOWED_OPTIONS = frozenset({"unix_socket", "ssl", "ssl_mode"})


def configuration(url: str, field: str = "database") -> dict[str, Any]:
    """Django's DATABASES entry for a URL; OPTIONS holds what the URL's query says.

    Opens no connection. Raises InvalidInput for `field`, with a sentence that does not repeat the
    URL, which may hold a password.
    """
    try:
        return env.parse_database(url)
    except env.WrongUrl as error:
        why, hint = map(_, error.args)
        text = _("the database's URL %(why)s. %(hint)s") % {"why": why, "hint": hint}
        raise InvalidInput(text, field) from None


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
        text = _("the database's URL has options that are not allowed: %s") % ", ".join(unknown)
        raise InvalidInput(text, field)
    if engines.of_config(config).is_server:
        return
    path = os.path.realpath(config["NAME"])
    files = [
        entry["NAME"]
        for entry in settings.DATABASES.values()
        if not engines.of_config(entry).is_server
    ]
    if path in map(os.path.realpath, files):
        raise InvalidInput(_("this file is the platform's own database"), field)


def add(alias: str, config: Mapping[str, Any]) -> str:
    """Make the database known to Django as `alias`; returns the alias."""
    # Django sets the other settings of a connection only in a dict that has a default database.
    complete_settings = connections.configure_settings({"default": dict(config)})
    connections.settings[alias] = complete_settings["default"]
    return alias
