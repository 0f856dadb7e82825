"""The messages of one event type: the request of the publisher, and the requests to consumers.

Consumers get a message in the format of their subscription. `orders.body` and
`subscriptions/formats.py` make the same bodies.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC
from functools import cached_property
from typing import Any

import msgspec
from django.db.models import TextChoices

from notify.api.asyncapi import schemas
from notify.models import EventType
from notify.subscriptions import formats
from notify.subscriptions.limits import CHANNEL

Schema = dict[str, Any]
_OTHER_THAN_WORDS = re.compile(r"[^A-Za-z0-9_.]")
SCHEMAS = "#/components/schemas/"
# A longer example is only in the payload's schema, not in each message.
_MAX_EXAMPLE_BYTES = 4096
_ID, _TIME = "1152921504606846977", "2026-11-23T00:00:00.000000Z"
_UNIX_TIME = "1795392000"


class Way(TextChoices):
    """The ways of an event through the platform, as suffixes of the names of its messages."""

    STANDARD = formats.Format.STANDARD.value, "Standard Webhooks"
    CLOUDEVENTS = formats.Format.CLOUDEVENTS.value, "CloudEvents, structured"
    CLOUDEVENTS_BINARY = formats.Format.CLOUDEVENTS_BINARY.value, "CloudEvents, binary"
    PUBLISH = "publish", "As it is published"


class Header(msgspec.Struct, frozen=True):
    name: str
    description: str
    example: str
    is_required: bool = True

    def schema(self) -> Schema:
        return {"type": "string", "description": self.description, "examples": [self.example]}


WEBHOOK_HEADERS = (
    Header("webhook-id", "The event's id, the same in every repeat: drop what you have seen", _ID),
    Header("webhook-timestamp", "When this attempt was made: seconds since 1970. Refuse what is "
           "more than five minutes old", _UNIX_TIME),
    Header("webhook-signature", "v1, and the HMAC-SHA256 of <webhook-id>.<webhook-timestamp>."
           "<body> in base64; two of them, separated by a space, while the secret is rotated",
           "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4="),
    Header("webhook-idempotency-key", "The key under which the event was published, if it had one",
           "order-20261120-7-paid", is_required=False),
)  # fmt: skip
BINARY_HEADERS = (
    *WEBHOOK_HEADERS,
    Header("ce-specversion", "The version of CloudEvents", "1.0"),
    Header("ce-id", "The same as webhook-id", _ID),
    Header("ce-source", "The business system that published the event", "/systems/orders"),
    Header("ce-type", "The event type", "order.paid"),
    Header("ce-time", "When the event was published", _TIME),
)
# Names of the components that have the headers; no event type has such a name.
HEADERS = {"webhook-headers": WEBHOOK_HEADERS, "webhook-binary-headers": BINARY_HEADERS}


def headers_schema(headers: tuple[Header, ...]) -> Schema:
    """The headers of a message as AsyncAPI describes them."""
    return {
        "type": "object",
        "required": [header.name for header in headers if header.is_required],
        "properties": {header.name: header.schema() for header in headers},
    }


class CatalogueEntry:
    """An entry of the catalogue, with the texts that the document has about it. `system` is '' for
    an entry that all business systems share.

    `key` names the entry's components. The key of a system's own entry begins with the system's
    name and two hyphens. The rest of the key has no hyphen, so keys are unique, with or without
    `-<way>` at the end.
    """

    def __init__(self, row: EventType) -> None:
        self.row, self.name = row, row.name
        self.system = row.biz.name if row.biz else ""

    @property
    def key(self) -> str:
        # AsyncAPI takes no colon and no slash in a key; no event type has two dots in a row.
        name = _OTHER_THAN_WORDS.sub(lambda match: f"..{ord(match[0]):02x}", self.name)
        return f"{self.system}--{name}" if self.system else name

    @property
    def schema_key(self) -> str:
        """The name of the payload's schema. It differs from the channel's name, because generators
        mix up a schema and a channel of the same name."""
        return f"{self.key}-payload"

    @property
    def type_name(self) -> str:
        """The words from which generators make the name of the payload's type (`OrderPaid`)."""
        words = re.sub(r"[.:/-]+", " ", self.name).strip()
        return f"{self.system} {words}" if self.system else words

    @property
    def source(self) -> str:
        """The `source` of CloudEvents; '' for a shared entry, whose publishers differ."""
        return formats.source(self.system) if self.system else ""

    @property
    def summary(self) -> str:
        """The first line of the description."""
        return self.row.description.strip().partition("\n")[0].strip()

    @cached_property
    def schema(self) -> Schema:
        """The payload's schema with its example, for `#/components/schemas/<key>-payload`."""
        pointer = f"{SCHEMAS}{self.schema_key}"
        schema: Schema | None = schemas.rewritten(self.row.schema or {}, pointer)
        if schema is None:
            schema = {"description": "Its JSON Schema is of a draft that AsyncAPI cannot express."}
        schema = {"title": self.type_name, **schema}
        if self.row.example is not None and not schemas.has_reference(self.row.example):
            schema.setdefault("examples", [self.row.example])
        return schema

    def message(self, way: Way) -> Schema:
        """The message for `#/components/messages/<key>-<way>`."""
        message: Schema = {
            "name": self.name,
            "title": f"{self.name} ({way.label})",
            "contentType": formats.CONTENT_TYPES.get(way, formats.JSON),
            "payload": _PAYLOADS[way](self),
            "x-changed-at": self.row.changed_at.astimezone(UTC).isoformat(),
        }
        if self.row.description:
            message |= {"summary": self.summary, "description": self.row.description}
        if way != Way.PUBLISH:
            is_binary = way == Way.CLOUDEVENTS_BINARY
            name = "webhook-binary-headers" if is_binary else "webhook-headers"
            message["headers"] = {"$ref": f"{SCHEMAS}{name}"}
            message["correlationId"] = {"location": "$message.header#/webhook-id"}
        if (
            self.row.example is not None
            and len(msgspec.json.encode(self.row.example)) <= _MAX_EXAMPLE_BYTES
            and not schemas.has_reference(self.row.example)
        ):
            message["examples"] = [{"name": "example", "payload": self.body(way)}]
        return message

    def body(self, way: Way) -> Any:
        if way == Way.CLOUDEVENTS_BINARY:
            return self.row.example
        if way == Way.PUBLISH:
            return {"event_type": self.name, "payload": self.row.example}
        if way == Way.STANDARD:
            return {"type": self.name, "timestamp": _TIME, "data": self.row.example}
        return {
            "specversion": "1.0", "id": _ID, "source": self.source or formats.source("orders"),
            "datacontenttype": formats.JSON, "type": self.name, "time": _TIME,
            "data": self.row.example,
        }  # fmt: skip

    @property
    def reference(self) -> Schema:
        return {"$ref": f"{SCHEMAS}{self.schema_key}"}


_MOMENT = {"type": "string", "format": "date-time", "description": "When the event was published"}


def _object(title: str, properties: Mapping[str, Any], optional: tuple[str, ...] = ()) -> Schema:
    required_names = [name for name in properties if name not in optional]
    return {
        "title": title, "type": "object", "required": required_names,
        "properties": dict(properties),
    }  # fmt: skip


def _standard(entry: CatalogueEntry) -> Schema:
    properties = {
        "type": {"const": entry.name}, "timestamp": _MOMENT, "data": entry.reference,
    }  # fmt: skip
    return _object(f"{entry.type_name} event", properties)


def _cloud_event(entry: CatalogueEntry) -> Schema:
    source: Schema = {"type": "string", "description": "The business system: /systems/orders"}
    return _object(f"{entry.type_name} cloud event", {
        "specversion": {"const": "1.0"},
        "id": {"type": "string", "description": "The event's id, the same in every repeat"},
        "source": {"const": entry.source} if entry.source else source,
        "datacontenttype": {"const": formats.JSON},
        "type": {"const": entry.name},
        "time": _MOMENT,
        "data": entry.reference,
    })  # fmt: skip


def _published(entry: CatalogueEntry) -> Schema:
    channel = {"type": "string", "pattern": f"^{CHANNEL.pattern}$"}
    key = {"type": "string", "minLength": 1, "maxLength": 128}
    properties = {
        "event_type": {"const": entry.name}, "payload": entry.reference,
        "channel": {**channel, "description": "A shop or a region by which subscriptions choose"},
        "idempotency_key": {**key, "description": "Names what happened: a repeat is no new event"},
    }  # fmt: skip
    return _object(
        f"{entry.type_name} publication", properties, optional=("channel", "idempotency_key")
    )


_PAYLOADS = {
    Way.STANDARD: _standard,
    Way.CLOUDEVENTS: _cloud_event,
    Way.CLOUDEVENTS_BINARY: lambda entry: entry.reference,
    Way.PUBLISH: _published,
}
