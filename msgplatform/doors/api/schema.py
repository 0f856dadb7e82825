"""The OpenAPI schema: adds here, once, what all operations have in common.

An operation is described where it is written:

- its docstring has the summary (the first sentence) and the description (the rest); where the view
  inherits the method, its class has it
- `@operation(…)` on the method names its body and its answers
- a view's `tag` is the group of its operations, its `query` (`api/query.py`) its parameters
- `accepts_idempotency_key = True` documents the header Idempotency-Key of its POST, which other
  views refuse
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, get_args

import msgspec
from drf_spectacular.extensions import OpenApiAuthenticationExtension, OpenApiSerializerExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ComponentRegistry, ResolvedComponent, build_mock_request
from drf_spectacular.utils import (
    Direction,
    OpenApiExample,
    OpenApiParameter,
    OpenApiResponse,
    extend_schema,
)
from rest_framework.fields import empty

from msgplatform.core.intake.idempotency import MAX_KEY_LENGTH
from msgplatform.doors.api.access.authentication import answers_limited_keys, required_scope
from msgplatform.doors.api.access.key_cache import ApiCaller
from msgplatform.doors.api.bodies import KEY_PATTERN
from msgplatform.doors.api.intake import BatchView
from msgplatform.doors.api.problems.problem import CONTENT_TYPE, KINDS
from msgplatform.doors.api.query import QueryView

F = TypeVar("F", bound=Callable[..., Any])

IDEMPOTENCY_KEY = OpenApiParameter(
    name="Idempotency-Key",
    location=OpenApiParameter.HEADER,
    description="Identifies this request: a repeat with the same key and body gets the result of "
    "the first one, the same key with another body gets 409.",
    type={"type": "string", "minLength": 1, "maxLength": MAX_KEY_LENGTH, "pattern": KEY_PATTERN},
)

_PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What to change"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["field", "message"],
                "properties": {
                    "field": {"type": "string"},
                    "message": {"type": "string"},
                    "line": {"type": "integer", "description": "Of a platform file"},
                    "path": {"type": "array", "items": {}, "description": "Of a platform file"},
                },
            },
        },
        "differences": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "required": ["stored", "sent"],
                "properties": {"stored": {}, "sent": {}},
            },
        },
        "required_scope": {"type": "string"},
        "max_bytes": {"type": "integer"},
        "error_id": {"type": "string"},
    },
}
_RETRY_AFTER = {
    "Retry-After": {
        "description": "Seconds to wait before the request is repeated",
        "schema": {"type": "integer"},
    }
}


def mock_request(*args: Any, **kwargs: Any) -> Any:
    """The request that views get while the schema is made: of a caller that owns nothing."""
    request = build_mock_request(*args, **kwargs)
    # Views read `request.user.biz_id` in get_queryset, which the schema calls too.
    request.user = ApiCaller(biz_id=0, biz_name="", key_id=0, scopes=frozenset())
    return request


def operation(
    body: Any = empty,
    answers: Mapping[int, Any] | None = None,
    example: tuple[str, Mapping[str, Any]] | None = None,
    **options: Any,
) -> Callable[[F], F]:
    """Names the body of an operation (a Struct, a serializer, or None) and its answers: status → a
    serializer, a text where there is no body, or both. `example` is the title and the value of a
    body; `options` are those of `extend_schema`."""
    if example is not None:
        options["examples"] = [_example(*example)]
    responses: Any = empty
    if answers is not None:
        responses = {status: _response(answer) for status, answer in answers.items()}
    return extend_schema(request=body, responses=responses, **options)


def _example(title: str, value: Mapping[str, Any]) -> OpenApiExample:
    return OpenApiExample(title, dict(value), request_only=True)


def _response(answer: Any) -> Any:
    if isinstance(answer, str):
        return OpenApiResponse(description=answer)
    return OpenApiResponse(*answer) if isinstance(answer, tuple) else answer


class PlatformSchema(AutoSchema):
    """Reads the texts of every operation from its docstring, and adds problem responses, the scope
    and the idempotency header."""

    def get_tags(self) -> list[str]:
        tag = getattr(self.view, "tag", "")
        return [tag] if tag else list(super().get_tags())

    def get_summary(self) -> str:
        return self._paragraphs()[0].rstrip(".")

    def get_description(self) -> str:  # type: ignore[override]  # spectacular's has no arguments
        summary, *paragraphs = self._paragraphs()
        return "\n\n".join(paragraphs) or summary

    def _paragraphs(self) -> list[str]:
        """The docstring of the method, or of the class if the method is inherited."""
        view = type(self.view)
        method_text = getattr(vars(view).get(self.method.lower()), "__doc__", None)
        paragraphs = inspect.cleandoc(method_text or view.__doc__ or "").split("\n\n")
        return [paragraph.replace("\n", " ") for paragraph in paragraphs]

    def get_request_serializer(self) -> Any:
        view: Any = self.view
        return view.body if isinstance(view, BatchView) else super().get_request_serializer()

    def get_examples(self) -> list[OpenApiExample]:
        example = self.view.example if isinstance(self.view, BatchView) else None
        return [_example(*example)] if example else []

    def get_response_serializers(self) -> Any:
        view: Any = self.view
        if isinstance(view, BatchView):
            return {200: _response(view.results)}
        return super().get_response_serializers()

    def get_operation(self, *args: Any, **kwargs: Any) -> dict[str, Any] | None:
        entry: dict[str, Any] | None = super().get_operation(*args, **kwargs)
        if entry is None:
            return None
        scope = required_scope(self.view, self.method)
        if scope:
            description = entry.get("description", "")
            if answers_limited_keys(self.view, self.method) is False:
                description += " Not for keys that are limited to business systems."
            entry["description"] = f"{description}\n\nScope: `{scope}`".strip()
        if isinstance(self.view, QueryView):
            for parameter in entry.get("parameters", ()):
                if parameter["in"] == "query" and not parameter.get("required"):
                    parameter["allowEmptyValue"] = True  # an empty one counts as absent
        statuses = [429, 500, 503]  # for every operation: rate limit, error, server unavailable
        if scope:
            statuses += [400, 401, 403]  # 400: at least for a parameter that is not known
        if "requestBody" in entry:
            statuses += [400, 413, 415]
        if "{" in self.path:
            statuses += [404]
        # The methods that answer 409 when the view cannot act now; True: POST.
        methods: bool | tuple[str, ...] = getattr(self.view, "answers_not_now", False)
        if methods is True:
            methods = ("POST",)
        if self._is_idempotent() or (methods and self.method in methods):
            statuses += [409]
        if getattr(self.view, "has_versions", False) and self.method in {"PUT", "DELETE"}:
            statuses += [412]
        for status in sorted(statuses):
            # If a view describes one of these answers itself, keep its description.
            entry["responses"].setdefault(str(status), _problem_response(status, self.registry))
        return entry

    def get_override_parameters(self) -> list[Any]:
        parameters: list[Any] = list(super().get_override_parameters())
        if self.method == "GET":
            parameters += getattr(self.view, "query", ())
        return [*parameters, IDEMPOTENCY_KEY] if self._is_idempotent() else parameters

    def _is_idempotent(self) -> bool:
        return self.method == "POST" and getattr(self.view, "accepts_idempotency_key", False)


def _problem_response(status: int, registry: ComponentRegistry) -> dict[str, Any]:
    """A reference to `#/components/responses/Problem<status>`, registered on first use."""
    problem = ResolvedComponent("Problem", ResolvedComponent.SCHEMA, _PROBLEM, "Problem")
    registry.register_on_missing(problem)
    kinds = [kind for kind in KINDS.values() if kind.status == status]
    response: dict[str, Any] = {
        "description": "; ".join(f"{kind.title} (`{kind.uri}`)" for kind in kinds),
        "content": {CONTENT_TYPE: {"schema": problem.ref}},
    }
    if status in {429, 503}:  # the two problems that say when to repeat the request
        response["headers"] = _RETRY_AFTER
    name = f"Problem{status}"
    component = ResolvedComponent(name, ResolvedComponent.RESPONSE, response, name)
    registry.register_on_missing(component)
    reference: dict[str, Any] = component.ref
    return reference


class StructExtension(OpenApiSerializerExtension):
    """Lets drf-spectacular take a msgspec Struct in place of a serializer. The component of a
    `NoteBody` is called `NoteRequest`."""

    target_class = msgspec.Struct
    match_subclasses = True

    def get_name(self, auto_schema: Any, direction: Direction) -> str:
        name: str = self.target.__name__
        return name.removesuffix("Body")

    def map_serializer(self, auto_schema: Any, direction: Direction) -> dict[str, Any]:
        """The JSON Schema of the Struct, with references to the Structs in it."""
        references = {
            struct.__name__: auto_schema.resolve_serializer(struct, direction).ref
            for field in msgspec.structs.fields(self.target)
            for struct in _structs_in(field.type)
        }
        _, components = msgspec.json.schema_components([self.target], ref_template="{name}")
        schema: dict[str, Any] = _simplify(components[self.target.__name__], references)
        return schema


def _structs_in(annotation: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        yield annotation
    for part in get_args(annotation):
        yield from _structs_in(part)


def _simplify(schema: Any, references: Mapping[str, Any]) -> Any:
    """The schema in a form for client generators: a field that may be null has two types and no
    default, and a reference leads to a component."""
    if not isinstance(schema, dict):
        return schema
    if name := schema.get("$ref"):
        return references[name]
    simple = {
        key: _simplify(value, references)
        for key, value in schema.items()
        if key not in {"title", "default", "properties", "anyOf"}
    }
    if fields := schema.get("properties"):
        simple["properties"] = {
            name: _simplify(field, references) for name, field in fields.items()
        }
    if options := schema.get("anyOf"):
        simple = {**_union([_simplify(option, references) for option in options]), **simple}
        if "enum" in simple and "null" in simple["type"]:
            simple["enum"] = [*simple["enum"], None]
    return simple


def _union(options: list[dict[str, Any]]) -> dict[str, Any]:
    types = [option.get("type") for option in options]
    (first, *others) = (option for option in options if option != {"type": "null"})
    if {"array", "string"} == set(types):
        # For "a text, or a list of texts" generators make nothing that can be used.
        return next(option for option in options if option["type"] == "array")
    if others and any(option.keys() != {"type"} for option in options):
        return {"oneOf": options}
    if "number" in types:
        types = [name for name in types if name != "integer"]
    return {**first, "type": types}


class BearerScheme(OpenApiAuthenticationExtension):
    """Describes the header Authorization in the OpenAPI schema."""

    target_class = "msgplatform.doors.api.access.authentication.ApiKeyAuthentication"
    name = "apiKey"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "bearerFormat": "mp_…"}
