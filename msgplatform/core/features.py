"""Features: parts of the platform that are present if FEATURES lists them.

A feature is a Django app whose tables, if any, are the platform's. The platform finds its parts by
the names of modules, each of which may be missing:

settings      what an installation changes; the platform's settings read it
models        its tables, with the platform's `app_label`; `person_stores` with data of people,
              `kept_data` for the page Retention
admin         lists and forms of the console
console_urls  `urlpatterns` below `/console/`, `menu` with its pages in the side bar
api           `urlpatterns` below `/api/v1/`
root_urls     `urlpatterns` of addresses elsewhere
management    commands

`AppConfig.ready()`, if any, registers checks, and adds to `upkeep`, `web_threads` and other lists
of the platform.
"""

from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import msgspec
from django.conf import settings
from django.http import HttpRequest

from msgplatform.core.flows.text import Text

# Dotted names, so that other programs do not load these modules. A process that runs bulk jobs
# makes an object of each class of `upkeep` (`jobs/upkeep.py`); a web process calls each function of
# `web_threads` at its start.
upkeep: list[str] = []
web_threads: list[str] = []


class MenuEntry(msgspec.Struct, frozen=True):
    """A page of a feature in the side bar; `icon` is a Material symbol."""

    title: Text
    icon: str
    view: str  # the name of its URL
    may_open: Callable[[HttpRequest], bool]


def gather(module: str, name: str) -> Iterator[Any]:
    """The items of the list `name` in the module `module` of every feature."""
    for imported_module in _modules(module):
        yield from getattr(imported_module, name, ())


@cache  # the menu of every page asks
def _modules(module: str) -> list[ModuleType]:
    names = [f"{feature}.{module}" for feature in settings.FEATURES]
    return [import_module(name) for name in names if find_spec(name)]
