"""The OpenAPI schema: adds here, once, what all operations have in common.

Views describe bodies with DRF serializers or with msgspec Structs (`@extend_schema(request=…)`);
the parameters in a view's `query` (`api/query.py`) need no other description.
`accepts_idempotency_key = True` on a view documents the header Idempotency-Key of its POST.
"""

from __future__ import annotations

from typing import Any

import msgspec
from drf_spectacular.extensions import (
    OpenApiAuthenticationExtension,
    OpenApiSerializerExtension,
)
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import (
    ComponentRegistry,
    ResolvedComponent,
    build_mock_request,
)
from drf_spectacular.utils import Direction, OpenApiParameter

from msgplatform.api.access.authentication import ApiCaller, required_scope
from msgplatform.api.intake import KEY_PATTERN
from msgplatform.api.problems.problem import CONTENT_TYPE, KINDS
from msgplatform.api.query import QueryView
from msgplatform.core.intake.idempotency import MAX_KEY_LENGTH

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
                "properties": {"field": {"type": "string"}, "message": {"type": "string"}},
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
    # Views read `request.user.biz_id` in get_queryset, which is called for the schema too.
    request.user = ApiCaller(biz_id=0, biz_name="", key_id=0, scopes=frozenset())
    return request


class PlatformSchema(AutoSchema):
    """Adds problem responses, the scope and the idempotency header to every operation."""

    def get_operation(
        self,
        path: str,
        path_regex: str,
        path_prefix: str,
        method: str,
        registry: ComponentRegistry,
    ) -> dict[str, Any] | None:
        operation: dict[str, Any] | None = super().get_operation(
            path, path_regex, path_prefix, method, registry
        )
        if operation is None:
            return None
        if scope := required_scope(self.view, self.method):
            description = operation.get("description", "")
            operation["description"] = f"{description}\n\nScope: `{scope}`".strip()
        if isinstance(self.view, QueryView):
            for parameter in operation.get("parameters", ()):
                if parameter["in"] == "query" and not parameter.get("required"):
                    parameter["allowEmptyValue"] = True  # it counts as absent
        for status in self._problem_statuses(operation):
            # A view that describes one of these answers itself keeps its own description.
            operation["responses"].setdefault(str(status), _problem_response(status, registry))
        return operation

    def get_override_parameters(self) -> list[Any]:
        parameters: list[Any] = list(super().get_override_parameters())
        if self.method == "GET":
            parameters += getattr(self.view, "query", ())
        return [*parameters, IDEMPOTENCY_KEY] if self._is_idempotent() else parameters

    def _is_idempotent(self) -> bool:
        return self.method == "POST" and getattr(self.view, "accepts_idempotency_key", False)

    def _problem_statuses(self, operation: dict[str, Any]) -> list[int]:
        statuses = [429, 500, 503]  # of every operation: rate limit, error, server unavailable
        if required_scope(self.view, self.method):
            statuses += [401, 403]
        if "requestBody" in operation:
            statuses += [400, 413, 415]
        elif self.method == "GET" and (
            # A QueryView refuses at least a parameter that it does not know.
            isinstance(self.view, QueryView)
            or any(parameter["in"] == "query" for parameter in operation.get("parameters", []))
        ):
            statuses += [400]
        if "{" in self.path:
            statuses += [404]
        if self._is_idempotent() or self._answers_not_now():
            statuses += [409]
        return sorted(statuses)

    def _answers_not_now(self) -> bool:
        """True if the view answers this method with 409 when it cannot act now."""
        methods: bool | tuple[str, ...] = getattr(self.view, "answers_not_now", False)
        return self.method in (methods if isinstance(methods, tuple) else ("POST",) * methods)


def _problem_response(status: int, registry: ComponentRegistry) -> dict[str, Any]:
    """A reference to `#/components/responses/Problem<status>`, registered on first use."""
    problem = ResolvedComponent("Problem", ResolvedComponent.SCHEMA, _PROBLEM, "Problem")
    registry.register_on_missing(problem)
    kinds = [kind for kind in KINDS.values() if kind.status == status]
    response: dict[str, Any] = {
        "description": "; ".join(f"{kind.title} (`{kind.uri}`)" for kind in kinds),
        "content": {CONTENT_TYPE: {"schema": problem.ref}},
    }
    if status in {429, 503}:  # the two that say when to repeat the request
        response["headers"] = _RETRY_AFTER
    name = f"Problem{status}"
    component = ResolvedComponent(name, ResolvedComponent.RESPONSE, response, name)
    registry.register_on_missing(component)
    reference: dict[str, Any] = component.ref
    return reference


class StructExtension(OpenApiSerializerExtension):
    """Lets drf-spectacular take a msgspec Struct in place of a serializer."""

    target_class = msgspec.Struct
    match_subclasses = True

    def get_name(self, auto_schema: Any, direction: Direction) -> str:
        name: str = self.target.__name__
        return name

    def map_serializer(self, auto_schema: Any, direction: Direction) -> dict[str, Any]:
        _, components = msgspec.json.schema_components(
            [self.target], ref_template="#/components/schemas/{name}"
        )
        own: dict[str, Any] = components.pop(self.target.__name__)
        # The Structs that it contains become components too; drf-spectacular knows only
        # serializers.
        for name, schema in components.items():
            component = ResolvedComponent(name, ResolvedComponent.SCHEMA, schema, name)
            auto_schema.registry.register_on_missing(component)
        return own


class BearerScheme(OpenApiAuthenticationExtension):
    """Describes the header Authorization in the OpenAPI schema."""

    target_class = "msgplatform.api.access.authentication.ApiKeyAuthentication"
    name = "apiKey"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "bearerFormat": "mp_…"}
