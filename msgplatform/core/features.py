"""Features: parts of the platform that can be left out, by their line in FEATURES.

A feature is a Django app whose tables, if it has some, are the platform's. It is found by the names
of its modules: `settings` (read by the platform's settings), `admin`, `management`, `console_urls`
(pages below `/console/`), `api_urls` (addresses below `/api/v1/`). In `AppConfig.ready()` it
registers its checks, its upkeep (`jobs/upkeep.py`) and what else the ground has a place for.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec

from django.conf import settings
from django.urls import URLPattern


def url_patterns(module: str) -> Iterator[URLPattern]:
    """The addresses in this module of every feature that has it."""
    for feature in settings.FEATURES:
        name = f"{feature}.{module}"
        if find_spec(name):
            yield from import_module(name).urlpatterns
