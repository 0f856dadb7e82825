"""The route of a request, for metrics: the fixed beginning of its address, one of few."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from django.conf import settings
from django.urls import URLPattern, URLResolver, get_resolver
from django.urls.resolvers import RoutePattern

OTHER = "other"
# Only the addresses at the root and those of the API are looked at one by one.
_OPEN = ("/", "/api/v1/")
_SEGMENTS = 6


class Routes:
    """Each address belongs to the longest known beginning, such as /console or /api/v1/messages.
    What nothing serves is OTHER, since callers can make up any number of addresses."""

    def __init__(self) -> None:
        beginnings = set(_beginnings(get_resolver().url_patterns, "/"))
        self._known = {path.rstrip("/") or "/" for path in (*beginnings, settings.STATIC_URL)}

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def of(self, path: str) -> str:
        if path in self._known:  # as a publish is
            return path
        path = "/".join(path.split("/", _SEGMENTS + 1)[: _SEGMENTS + 1])
        while path not in self._known:
            path = path.rpartition("/")[0].rstrip("/")
            if not path:
                return OTHER
        return path


def _beginnings(patterns: Iterable[URLPattern | URLResolver], prefix: str) -> Iterator[str]:
    for pattern in patterns:
        if not isinstance(pattern.pattern, RoutePattern):
            continue  # a regular expression for addresses that nothing else serves
        beginning = prefix + str(pattern.pattern).partition("<")[0]
        if isinstance(pattern, URLResolver) and beginning in _OPEN:
            yield from _beginnings(pattern.url_patterns, beginning)
        else:
            yield beginning
