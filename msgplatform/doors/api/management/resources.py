"""The things that people set up, over HTTP: lists, and one by its address.

    urlpatterns = routes(Consumer)

An answer that shows one thing has an `ETag`. With `If-Match` a PUT or a DELETE changes what the
caller has read, or nothing (RFC 9110, §13.1.1): of two people at once the second gets 412.
"""

import re
from typing import Any

from django.db.models import QuerySet
from django.urls import URLPattern, path
from drf_spectacular.utils import (
    OpenApiExample,
    OpenApiParameter,
    OpenApiResponse,
    extend_schema,
    extend_schema_view,
)
from rest_framework import status
from rest_framework.exceptions import ParseError
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from msgplatform.core.errors import InvalidInput
from msgplatform.doors.api.access.authentication import caller_of
from msgplatform.doors.api.query import NAME, ListView, QueryView
from msgplatform.messages.filters import business_system
from msgplatform.models import AuditLog
from msgplatform.setup.resource import Resource, Stored

OF_SYSTEM = OpenApiParameter("system", NAME, description="Only those of this business system")
_IF_MATCH = OpenApiParameter(
    "If-Match",
    str,
    OpenApiParameter.HEADER,
    description="The `ETag` of what was read: if it was changed meanwhile, the answer is 412",
)
_IF_NONE_MATCH = OpenApiParameter(
    "If-None-Match",
    {"type": "string", "pattern": r"^\*$"},
    OpenApiParameter.HEADER,
    description="*: only create it; if it is there already, the answer is 412",
)
_ENTITY_TAG = re.compile(r'(?:W/)?"([^"*]+)"')
_ETAG = OpenApiParameter(
    "ETag", str, OpenApiParameter.HEADER, response=True, description="The version that is shown"
)


def actor(request: Request) -> str:
    """The management key's name, for the audit log."""
    return f"{caller_of(request).key_name} (API key)"


def audit(request: Request, action: str, target: str, **detail: Any) -> None:
    """Store an action of a management key in the audit log."""
    AuditLog.record(actor(request), action, target, **detail)


def own_rows(request: Request, rows: QuerySet[Any], lookup: str = "biz__name") -> QuerySet[Any]:
    """The rows of the business systems to which the key is limited, or all; `lookup` leads to the
    name of a row's system."""
    systems = caller_of(request).systems
    return rows.filter(**{f"{lookup}__in": systems}) if systems else rows


class _LimitedView(QueryView, GenericAPIView[Any]):
    resource_class: type[Resource]

    def get_serializer_context(self) -> dict[str, Any]:
        """The context has the business systems to which the reader is limited."""
        return {**super().get_serializer_context(), "systems": caller_of(self.request).systems}


class ResourceView(_LimitedView):
    """One thing that its address names."""

    has_versions = True
    preconditions = {"PUT": ("If-Match", "If-None-Match"), "DELETE": ("If-Match",)}

    def resource(self) -> Resource:
        resource = self.resource_class(actor(self.request), **self.kwargs)
        resource.systems = caller_of(self.request).systems
        return resource

    def get(self, request: Request, **_address: str) -> Response:
        resource = self.resource()
        return self._answer(resource, resource.get())

    def put(self, request: Request, **_address: str) -> Response:
        resource = self.resource()
        if not int(request.META.get("CONTENT_LENGTH") or 0):
            # Leaving out all fields would reset them, which nobody means.
            raise ParseError("The body is empty: send a JSON value.")
        condition = request.headers.get("If-None-Match")
        if condition not in (None, "*"):
            raise InvalidInput("Write *, without quotes; no other value works.", "If-None-Match")
        stored = resource.put(request.data, _version(request), should_be_new=condition == "*")
        return self._answer(resource, stored.row, stored)

    def delete(self, request: Request, **_address: str) -> Response:
        self.resource().delete(_version(request))
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _answer(self, resource: Resource, row: Any, stored: Stored | None = None) -> Response:
        content = {**self.get_serializer(row).data, **(stored.shown_once if stored else {})}
        is_new = stored is not None and stored.is_new
        return Response(
            content,
            status.HTTP_201_CREATED if is_new else status.HTTP_200_OK,
            headers={"ETag": f'"{resource.version(row)}"'},
        )


class ResourceListView(_LimitedView, ListView):
    """Everything of one kind."""

    def get_queryset(self) -> QuerySet[Any]:
        kind = self.resource_class
        rows = kind.join_relations(kind.model._default_manager.all())
        if kind.list_system and (system := self.query_values.get("system")):
            names = caller_of(self.request).systems
            return rows.filter(**{kind.list_system: business_system(system, "system", names)})
        return rows

    def filter_queryset(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        rows = super().filter_queryset(queryset)
        return self.resource_class.visible_rows(rows, caller_of(self.request).systems)


def routes(
    kind: type[Resource], list_view: type[ResourceListView] = ResourceListView
) -> list[URLPattern]:
    """The addresses of a kind of things: their list, and one of them."""
    attributes = {
        "resource_class": kind,
        "tag": kind.nouns,
        "required_scope": kind.scope,
        "serializer_class": kind.serializer_class,
        "answers_not_now": kind.conflicts,
        "answers_limited_keys": kind.answers_limited_keys,
    }
    detail_class: Any = type(f"{kind.__name__}View", (ResourceView,), attributes)
    list_attributes = {
        "query": [*([OF_SYSTEM] if kind.list_system else []), *list_view.query],
        "keyset_ordering": tuple(kind.list_order),
    }
    list_class: Any = type(f"{kind.__name__}ListView", (list_view,), attributes | list_attributes)
    name = kind.noun.replace(" ", "-")
    # The OpenAPI document's operations of one thing.
    noun, serializer = kind.noun, kind.serializer_class
    a_noun = f"{'an' if noun[0] in 'AEIOUaeiou' else 'a'} {noun}"
    address = list(kind.parameters)
    responses: dict[int, Any] = {
        200: OpenApiResponse(serializer, "It was there, and is now as the body says."),
        201: OpenApiResponse(kind.created_serializer_class or serializer, "It was created."),
    }
    put_notes = (
        f"Afterwards the {noun} is as the body says: a field that is left out, or null, has its "
        "default, unless its description says that it stays. The same request again changes "
        f"nothing. {kind.notes}"
    )
    describe: Any = extend_schema_view(
        get=extend_schema(
            summary=f"Show {a_noun}", description=f"The {noun} of this name.",
            parameters=[*address, _ETAG],
        ),
        put=extend_schema(
            summary=f"Create or replace {a_noun}", description=put_notes.strip(),
            parameters=[*address, _IF_MATCH, _IF_NONE_MATCH, _ETAG],
            request=serializer, responses=responses,
            examples=[OpenApiExample(f"a whole {noun}", dict(kind.example), request_only=True)],
        ),
        delete=extend_schema(
            summary=f"Delete {a_noun}", description=kind.on_delete,
            parameters=[*address, _IF_MATCH], responses={204: None},
        ),
    )  # fmt: skip
    patterns = [path(kind.path, describe(detail_class).as_view(), name=name)]
    if kind.list_path:
        describe_list = extend_schema_view(
            get=extend_schema(
                summary=f"List {kind.nouns}",
                description=kind.list_notes or f"Every {kind.noun}, by name.",
            )
        )
        view = describe_list(list_class).as_view()
        patterns.insert(0, path(kind.list_path, view, name=f"{name}-list"))
    return patterns


def _version(request: Request) -> str:
    """The version that If-Match names, "*", or '' without the header. Another text, such as an
    empty one, matches nothing.

    A weak ETag counts too, unlike in RFC 9110, §13.1.1: a proxy that compresses an answer makes
    ours weak, and a version belongs to the values, whatever the bytes are."""
    if "If-Match" not in request.headers:
        return ""
    text = request.headers["If-Match"].strip()
    match = _ENTITY_TAG.fullmatch(text)
    return match[1] if match else text or "empty"
