"""Features: parts of the platform that can be left out, by their line in FEATURES.

A feature is a Django app whose tables, if it has some, are the platform's. It is found by the names
of its modules, each of which may be missing:

settings      what an installation changes; the platform's settings read it
admin         lists and forms of the console
console_urls  `urlpatterns` below `/console/`, `menu` with its pages in the side bar
api_urls      `urlpatterns` below `/api/v1/`
root_urls     `urlpatterns` of addresses elsewhere
management    commands

In `AppConfig.ready()` it registers its checks, its upkeep (`jobs/upkeep.py`), the threads that it
has in web processes (`web_threads`), and what else the platform asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from django.conf import settings
from django.http import HttpRequest

from msgplatform.core.flows.text import Text

# Called when a web process begins; each starts a thread.
web_threads: list[Callable[[], None]] = []


@dataclass(frozen=True)
class MenuEntry:
    """A page of a feature in the side bar; `icon` is a Material symbol."""

    title: Text
    icon: str
    view: str  # the name of its URL
    may_open: Callable[[HttpRequest], bool]


def gather(module: str, name: str) -> Iterator[Any]:
    """The items of the list `name` in this module of every feature."""
    for feature in settings.FEATURES:
        if find_spec(f"{feature}.{module}"):
            yield from getattr(import_module(f"{feature}.{module}"), name, ())
