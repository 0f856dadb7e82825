"""The platform file over the management API: apply it, write it, and its JSON Schema, whose bodies
are those of the OpenAPI document."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from msgspec import structs
from rest_framework import serializers
from rest_framework.exceptions import ParseError, UnsupportedMediaType
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from msgplatform.core.errors import InvalidInput
from msgplatform.doors.api import json
from msgplatform.doors.api.access.authentication import caller_of
from msgplatform.doors.api.management.resources import actor, audit
from msgplatform.doors.api.query import QueryView, values_of
from msgplatform.doors.api.schema import operation
from msgplatform.setup.fields import ObjectField, fields_of
from msgplatform.setup.platform_file import applying, exporting, kinds, reading, text
from msgplatform.setup.platform_file.outcome import Action
from msgplatform.setup.platform_file.reading import VERSION, VERSION_KEY

SCOPE = "manage:platform"
# Maximum bytes of a body with all files together. For one file on a machine: `text.MAX_BYTES`.
MAX_BYTES = 10 * 1024 * 1024
_YAML = ("application/yaml", "application/x-yaml", "text/yaml")
_FLAG = ("true", "false")
_MAX_TITLES = 100
_COMPONENTS, _DEFINITIONS = "#/components/schemas/", "#/$defs/"
# Keywords about the secret itself: in a file a reference takes its place.
_SECRET_KEYWORDS = ("maxLength", "minLength", "pattern", "format")


class YamlRenderer(BaseRenderer):
    """The file as people write it, for callers that accept YAML."""

    media_type, format, charset = _YAML[0], "yaml", "utf-8"

    def render(self, data: Any, *_arguments: Any, **_options: Any) -> bytes:
        return (data if isinstance(data, str) else text.write(data)).encode()


class PlatformFileSerializer(serializers.Serializer[Any]):
    """A platform file: sections with names, each with the body of its PUT."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        options: dict[str, Any] = {"required": False, "allow_null": True}
        version = serializers.IntegerField(help_text="The form of the file: 1", **options)
        sections = {
            name: ObjectField(help_text=f"{kinds_of_section[0].nouns}, by name", **options)
            for name, kinds_of_section in kinds.sections().items()
        }
        return {VERSION_KEY: version, **sections}


class ObjectChangeSerializer(serializers.Serializer[Any]):
    """The change of one object."""

    action = serializers.ChoiceField(
        choices=[action.value for action in Action],
        help_text="unlisted: the file does not have it, and it is left alone",
    )
    section = serializers.CharField()
    name = serializers.CharField()
    values = serializers.DictField(
        source="body", help_text="Of one that is added, as sent, without secrets"
    )
    differences = serializers.DictField(
        help_text='Of one that is changed: field → {"stored": before, "sent": after}'
    )
    secrets = serializers.ListField(
        child=serializers.CharField(),
        source="changed_secrets",
        help_text="Secret fields that are set or changed; their values are shown nowhere",
    )
    note = serializers.CharField(help_text="Such as who has changed it by hand; or empty")
    new_secrets = serializers.DictField(
        source="shown_once",
        help_text="Secrets that the platform has made, shown this once; empty in a dry run",
    )


class PlatformChangesSerializer(serializers.Serializer[Any]):
    """The changes, which a dry run does not make."""

    dry_run = serializers.BooleanField()
    label = serializers.CharField()  # type: ignore[assignment]  # Field has one too
    plan = serializers.CharField(help_text="Of these changes: send it to have these and no others")
    counts = serializers.DictField(child=serializers.IntegerField(), help_text="Action → objects")
    changes = ObjectChangeSerializer(many=True)


_PUT_QUERY = (
    OpenApiParameter("dry_run", str, enum=_FLAG, description="true: only show what would be done"),
    OpenApiParameter(
        "prune",
        str,
        enum=_FLAG,
        description="true: remove, as DELETE does, what the sections of the file do not have",
    ),
    OpenApiParameter(
        "label",
        {"type": "string", "maxLength": applying.MAX_LABEL},
        description="Where the file comes from, such as a commit: the console shows it",
    ),
    OpenApiParameter(
        "plan",
        str,
        description="`plan` of a dry run: 412, and nothing is changed, if the changes would be "
        "others than it has shown",
    ),
)


class PlatformView(QueryView):
    tag = "platform file"
    required_scope = SCOPE
    answers_limited_keys = True
    answers_not_now = ("PUT",)
    has_versions = True
    max_body_bytes = MAX_BYTES
    write_parameters = tuple(parameter.name for parameter in _PUT_QUERY)
    query = (
        OpenApiParameter("section", str, description="Only these sections: systems,consumers"),
        OpenApiParameter("system", str, description="Only what belongs to these business systems"),
        OpenApiParameter(
            "references",
            str,
            enum=_FLAG,
            description="true, of YAML: references in the place of stored secrets, ${NAME}",
        ),
    )

    def get_renderers(self) -> list[BaseRenderer]:
        renderers: list[BaseRenderer] = super().get_renderers()
        is_described = getattr(self, "swagger_fake_view", False)
        return renderers if is_described else [*renderers, YamlRenderer()]

    @operation(None, {200: PlatformFileSerializer})
    def get(self, request: Request) -> Response:
        """Export the platform file.

        What is set up, without secrets and API keys, in the form that PUT takes: JSON, or YAML
        with comments for `Accept: application/yaml`. A key that is limited to business systems
        gets what belongs to them.
        """
        sections = _names(self.query_values, "section")
        systems, limit = _names(self.query_values, "system"), caller_of(request).systems
        if limit and (unknown := sorted(systems - limit)):
            raise InvalidInput(f"The key is limited, and not to {', '.join(unknown)}.", "system")
        exporting.check_names(sections, systems)
        systems = systems or limit
        has_references = self.query_values.get("references") == "true"
        if not isinstance(request.accepted_renderer, YamlRenderer):
            if has_references:
                raise InvalidInput("Ask for YAML: Accept: application/yaml.", "references")
            return Response(exporting.content(sections, systems))
        lines = exporting.export(sections, systems, has_references)
        return Response("".join(f"{line}\n" for line in lines))

    @operation(
        PlatformFileSerializer,
        {200: PlatformChangesSerializer},
        (
            "a system with a subscription",
            {
                "msgplatform": 1,
                "systems": {"orders": {"title": "Order service"}},
                "consumers": {"warehouse": {"url": "https://warehouse.example/hooks"}},
                "subscriptions": {"orders/warehouse": {"event_types": ["order.*"]}},
            },
        ),
        parameters=list(_PUT_QUERY),
    )
    def put(self, request: Request) -> Response:
        """Apply a platform file.

        Everything that it describes is created or replaced as by its own PUT, all of it or
        nothing; what it does not have is left alone. It is JSON, or YAML with `Content-Type:
        application/yaml`, and at most 10 MiB. Secrets are in it as they are; the server reads no
        references. All its faults are answered at once, with their lines. 409 while another file is
        being applied. A key that is limited to business systems applies what belongs to them.
        """
        query = values_of(request, _PUT_QUERY)
        label = query.get("label", "")
        if len(label) > applying.MAX_LABEL:
            raise InvalidInput(f"A label has at most {applying.MAX_LABEL} characters.", "label")
        options = applying.Options(
            actor(request),
            is_trial=query.get("dry_run") == "true",
            should_prune=query.get("prune") == "true",
            systems=caller_of(request).systems,
            label=label,
            plan=query.get("plan", ""),
        )
        content_type = request.META.get("CONTENT_TYPE", "")
        media_type = json.media_type_of(content_type)
        if media_type in _YAML:
            content = reading.parse_sent(json.read_body(request, MAX_BYTES), MAX_BYTES)
        elif media_type in (json.MEDIA_TYPE, ""):  # without a body there is no type
            content = reading.parse_sent_json(json.parse_any(json.read_body(request, MAX_BYTES)))
        else:
            raise UnsupportedMediaType(content_type)
        if content.value is None:
            raise ParseError("The body is empty: send a platform file.")
        description = reading.read_sent(content)
        outcome = applying.apply(description, options)
        if options.is_trial and (titles := applying.titles_with_secrets(description)):
            # The answer tells whether a sent secret is the stored one.
            audit(request, "platform_file_tried", options.label, secrets_of=titles[:_MAX_TITLES])
        changes = outcome.changes
        if options.is_trial:  # these secrets are undone and must not be stored by anybody
            changes = [structs.replace(change, shown_once={}) for change in changes]
        values = {
            "dry_run": options.is_trial, "label": options.label, "plan": outcome.plan,
            "counts": outcome.counts, "changes": changes,
        }  # fmt: skip
        return Response(PlatformChangesSerializer(values).data)


class PlatformSchemaView(APIView):
    tag = "platform file"
    required_scope = SCOPE
    answers_limited_keys = True

    @operation(None, {200: OpenApiTypes.OBJECT})
    def get(self, request: Request) -> Response:
        """Show the schema of platform files.

        A JSON Schema of draft 2020-12, for editors and for checks before a file is sent. Fields
        with `writeOnly` are secrets.
        """
        return Response(json_schema())


@cache
def json_schema() -> dict[str, Any]:
    """The schema of draft 2020-12. It takes seconds, and is always the same in a process."""
    with GENERATOR_STATS.silence():
        document: Any = SchemaGenerator(urlconf="msgplatform.urls").get_schema(
            request=None, public=True
        )
    definitions: dict[str, Any] = {}
    properties: dict[str, Any] = {VERSION_KEY: {"const": VERSION}}
    for section, kinds_of_section in kinds.sections().items():
        kind = kinds_of_section[0]
        names = " or ".join("/".join(part.address_lookups) for part in kinds_of_section)
        # The body of this kind's PUT.
        path = "/api/v1/" + re.sub(r"<\w+:(\w+)>", r"{\1}", kind.path)
        content = document["paths"][path]["put"]["requestBody"]["content"]
        body = _move_references(content["application/json"]["schema"], document, definitions)
        fields = definitions[body["$ref"].removeprefix(_DEFINITIONS)]["properties"]
        for name, field in fields_of(kind.serializer_class).items():
            for keyword in _SECRET_KEYWORDS if field.source in kind.secret_fields else ():
                fields[name].pop(keyword, None)
        properties[section] = {
            "description": f"{kind.nouns[0].upper()}{kind.nouns[1:]}, by name: {names}",
            "type": ["object", "null"],
            "additionalProperties": {"anyOf": [body, {"type": "null"}]},
        }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Platform file of msgplatform",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "$defs": definitions,
    }


def _move_references(schema: Any, document: Any, definitions: dict[str, Any]) -> Any:
    """The schema with its references to components as references to definitions."""
    if isinstance(schema, list):
        return [_move_references(part, document, definitions) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(reference := schema.get("$ref"), str):
        name = reference.removeprefix(_COMPONENTS)
        if name not in definitions:
            definitions[name] = {}  # set before its content is read: it may refer to itself
            component = document["components"]["schemas"][name]
            definitions[name].update(_move_references(component, document, definitions))
        return {**schema, "$ref": _DEFINITIONS + name}
    return {key: _move_references(value, document, definitions) for key, value in schema.items()}


def _names(query: Mapping[str, str], parameter: str) -> frozenset[str]:
    """The names of a parameter, separated by commas. Raises InvalidInput for one without names: the
    answer would be everything."""
    names = frozenset(query.get(parameter, "").replace(",", " ").split())
    if parameter in query and not names:
        raise InvalidInput("Give at least one name, or leave it out.", parameter)
    return names
