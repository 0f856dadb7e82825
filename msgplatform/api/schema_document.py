"""The OpenAPI document as a whole: its address, its introduction (the part of docs/integrate.md
about every request), and request bodies that are as strict as the platform.

A body is required, and has no field that is not listed.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView
from rest_framework.request import Request

_PAGE = settings.BASE_DIR / "docs" / "integrate.md"
# From the first section of the page to the one of a flow.
_SECTION = re.compile(r"^## What holds for every request\n(.*?)^## ", re.MULTILINE | re.DOTALL)
# Links to other pages of docs/, which the web server does not serve.
_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]*\)")


Schema = dict[str, Any]


def introduce(result: Schema, **_context: Any) -> Schema:
    """A hook of drf-spectacular: changes the document, and returns it."""
    summary = result["info"].get("description", "")
    result["info"]["description"] = "\n\n".join(filter(None, (summary, _introduction())))
    return result


def _introduction() -> str:
    """The section as Markdown; '' where docs/ is not installed."""
    try:
        section = _SECTION.search(_PAGE.read_text(encoding="utf-8"))
    except OSError:
        return ""
    return _LINK.sub(r"\1", section[1]).strip() if section else ""


def close_bodies(result: Schema, **_context: Any) -> Schema:
    """A hook of drf-spectacular: changes the document, and returns it."""
    schemas = result.get("components", {}).get("schemas", {})
    closed_names: set[str] = set()
    for operations in result["paths"].values():
        for operation in operations.values():
            if body := operation.get("requestBody"):
                body["required"] = True
                for content in body["content"].values():
                    _close(content["schema"], schemas, closed_names)
    return result


def _close(schema: Schema, schemas: Schema, closed_names: set[str]) -> None:
    """Close the schema, what it contains, and the components that it refers to."""
    if reference := schema.get("$ref"):
        name = reference.rpartition("/")[2]
        if name in closed_names:
            return
        closed_names.add(name)
        schema = schemas[name]
    if "properties" in schema:
        schema.setdefault("additionalProperties", False)
    for part in _parts(schema):
        _close(part, schemas, closed_names)


def _parts(schema: Schema) -> Iterator[Schema]:
    yield from schema.get("properties", {}).values()
    for word in ("oneOf", "anyOf", "allOf"):
        yield from schema.get(word, ())
    if "items" in schema:
        yield schema["items"]


_making = threading.Lock()
_documents: dict[str, str | bytes] = {}  # by media type
_FORMATS = frozenset({"json", "yaml"})


class SchemaView(SpectacularAPIView):
    """The document, in the platform's language; as YAML, or as JSON with `?format=json`. Each
    process makes it once. Other query parameters are ignored: the document of every language that a
    caller makes up would stay in memory."""

    def get_format_suffix(self, **_address: Any) -> str | None:
        name: str = self.request.query_params.get("format", "")
        return name if name in _FORMATS else None

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
        renderer = request.accepted_renderer
        kind = renderer.media_type
        with _making:  # callers that come meanwhile wait for the first one's document
            if kind not in _documents:
                schema = self.generator_class().get_schema(request=None, public=True)
                _documents[kind] = renderer.render(schema, kind, {})
        name = f'inline; filename="msgplatform.{renderer.format}"'
        return HttpResponse(
            _documents[kind], content_type=kind, headers={"Content-Disposition": name}
        )
