"""The OpenAPI document of a URL configuration, and the views behind it."""

import re
from functools import cache
from typing import Any

from django.urls import URLPattern, URLResolver
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator


def generate(urlconf: str) -> dict[str, Any]:
    schema: dict[str, Any] = SchemaGenerator(urlconf=urlconf).get_schema(request=None, public=True)
    return schema


@cache
def document(urlconf: str = "msgplatform.urls") -> dict[str, Any]:
    """The schema, made once in a process: that takes a second. Only to be read."""
    with GENERATOR_STATS.silence():
        return generate(urlconf)


def statuses(schema: dict[str, Any], path: str, method: str) -> set[str]:
    return set(schema["paths"][path][method]["responses"])


def api_views(resolver: URLResolver, prefix: str = "/") -> Any:
    """(path as in the schema, class) of every DRF view under /api/v1/."""
    for entry in resolver.url_patterns:
        path = prefix + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from api_views(entry, path)
        elif isinstance(entry, URLPattern) and path.startswith("/api/v1/"):
            view = getattr(entry.callback, "cls", None)
            if view is not None:
                yield re.sub(r"<(?:\w+:)?(\w+)>", _variable, path), view


def _variable(match: re.Match[str]) -> str:
    return "{id}" if match[1] == "pk" else f"{{{match[1]}}}"
