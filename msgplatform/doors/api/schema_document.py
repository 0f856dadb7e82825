"""The OpenAPI document: hooks of drf-spectacular that complete it, and the view that serves it.

The document begins with the part of docs/integrate.md about every request. Request bodies are as
strict as the platform: a body is required, and other fields than those listed are refused.
"""

import re
import threading
from contextlib import suppress
from typing import Any

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView
from rest_framework.request import Request

from msgplatform import env

_PAGE = env.FILES_DIR / "docs" / "integrate.md"
# The first section, which ends at the next heading.
_SECTION = re.compile(r"^## What holds for every request\n(.*?)^## ", re.MULTILINE | re.DOTALL)
# Links to other pages of docs/, which the web server does not serve: only the text is kept.
_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]*\)")
# drf-spectacular's schemas for a field with a pattern, and for a field with choices.
_BLANK_TEXT = {"type": "string", "maxLength": 0}
_BLANK_ENUM = {"$ref": "#/components/schemas/BlankEnum"}

Schema = dict[str, Any]


def introduce(result: Schema, **_context: Any) -> Schema:
    """Hook: add the introduction, a section of a page as Markdown, to the API's description."""
    with suppress(OSError):  # docs/ may not be installed
        if section := _SECTION.search(_PAGE.read_text(encoding="utf-8")):
            summary = result["info"].get("description", "")
            introduction = _LINK.sub(r"\1", section[1]).strip()
            result["info"]["description"] = "\n\n".join(filter(None, (summary, introduction)))
    return result


def close_bodies(result: Schema, **_context: Any) -> Schema:
    """Hook: make each request body required and its schemas closed."""
    schemas = result.get("components", {}).get("schemas", {})
    closed_names: set[str] = set()
    for operations in result["paths"].values():
        for operation in operations.values():
            if body := operation.get("requestBody"):
                body["required"] = True
                for content in body["content"].values():
                    _close(content["schema"], schemas, closed_names)
    return result


def join_blanks(result: Schema, **_context: Any) -> Schema:
    """Hook: replace the alternative "or an empty text" by one type.

    Generators of clients make a class for `oneOf`, and cannot name alternatives without a type.
    """
    schemas = result["components"]["schemas"]
    for schema in schemas.values():
        for field in schema.get("properties", {}).values():
            options = field.get("oneOf", [])
            if _BLANK_TEXT in options:
                (text_schema,) = (option for option in options if option != _BLANK_TEXT)
                del field["oneOf"]
                field |= {**text_schema, "pattern": f"^$|{text_schema['pattern']}"}
            elif _BLANK_ENUM in options:
                names = [option["$ref"].rpartition("/")[2] for option in options]
                del field["oneOf"]
                field |= {
                    "type": ["string", "null"] if "NullEnum" in names else "string",
                    "enum": [
                        value for name in names for value in schemas[name].get("enum", [None])
                    ],
                }
    schemas.pop("BlankEnum", None)
    return result


def _close(schema: Schema, schemas: Schema, closed_names: set[str]) -> None:
    """Refuse other fields in the schema, in its parts, and in the components it refers to."""
    if reference := schema.get("$ref"):
        name = reference.rpartition("/")[2]
        if name in closed_names:
            return
        closed_names.add(name)
        schema = schemas[name]
    if "properties" in schema:
        schema.setdefault("additionalProperties", False)
    parts = [*schema.get("properties", {}).values()]
    for word in ("oneOf", "anyOf", "allOf"):
        parts += schema.get(word, ())
    if "items" in schema:
        parts.append(schema["items"])
    for part in parts:
        _close(part, schemas, closed_names)


_document_lock = threading.Lock()
_documents: dict[str, str | bytes] = {}  # by media type
_FORMATS = frozenset({"json", "yaml"})


class SchemaView(SpectacularAPIView):
    """The document as YAML, or as JSON with `?format=json`; each process makes it once.

    drf-spectacular's `?lang=` is ignored: a document for every language that a caller invents would
    stay in memory.
    """

    def get_format_suffix(self, **_address: Any) -> str | None:
        name: str = self.request.query_params.get("format", "")
        return name if name in _FORMATS else None

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
        renderer = request.accepted_renderer
        media_type = renderer.media_type
        with _document_lock:  # the first request makes the document, and others wait for it
            if media_type not in _documents:
                schema = self.generator_class().get_schema(request=None, public=True)
                _documents[media_type] = renderer.render(schema, media_type, {})
        return HttpResponse(
            _documents[media_type],
            content_type=media_type,
            headers={"Content-Disposition": f'inline; filename="msgplatform.{renderer.format}"'},
        )
