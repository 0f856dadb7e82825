"""Where a CRM is, by its settings: credentials that are stored serve only there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from crmsync.adapters.registry import registry
from crmsync.adapters.settings import read_settings
from msgplatform.core.errors import InvalidInput
from msgplatform.core.http import destinations

# Settings of other people's adapters that say where their CRM is without a URL.
_PLACES = frozenset({"host", "hostname", "server", "domain", "instance", "port"})


def of(adapter: str, settings: Mapping[str, Any]) -> frozenset[str]:
    """Scheme, host and port of every URL in the settings, those left out included."""
    whole: Any = dict(settings)
    with suppress(InvalidInput):  # settings of an adapter that is gone, or that it refuses
        whole = msgspec.to_builtins(read_settings(registry().get(adapter).Settings, settings))
    return frozenset(_in(whole))


def _in(value: Any, name: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _in(inner, str(key))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _in(inner, name)
    elif isinstance(value, str) and "://" in value:
        yield destinations.origin(value)
    elif name in _PLACES and value not in (None, ""):
        yield f"{name} {value}"
