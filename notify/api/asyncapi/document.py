"""The AsyncAPI document, made from rows of the catalogue.

The document describes the platform: it *receives* events from business systems, and *sends* events
to consumers. The size of the document is bounded, and rows are read in pages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec
from django.conf import settings
from django.db.models import QuerySet

from msgplatform.core.data import chunks
from msgplatform.core.errors import InvalidInput
from notify.api.asyncapi.messages import HEADERS, CatalogueEntry, Way, headers_schema
from notify.models import EventType
from notify.subscriptions import formats

ASYNCAPI = "3.0.0"
MAX_EVENT_TYPES = 5_000
MAX_BYTES = 16 * 1024 * 1024
_PAGE = 100  # rows; a row has at most 320 KiB
_RELEASE = 1  # raise it when the same rows make another document
_PUBLISH = "publish-events"  # the channel; no event type has a hyphen
_TOO_MANY = (
    "There are too many event types for one document: name those that you need, such as order.*"
)
_DESCRIPTION = """\
The event types of the catalogue. Business systems publish events at `POST /api/v1/messages`; the
platform delivers each by a POST to the consumers that have subscribed to it.

A consumer gets events in the format that its subscription has: Standard Webhooks (the default), or
CloudEvents 1.0, structured or binary. Answer 2xx once the event is stored. An event may come more
than once, with the same `webhook-id`, and events may come in any order. An event that the filter of
its subscription leaves out does not come.

Verify the signature before anything parses the body. A library of
[Standard Webhooks](https://www.standardwebhooks.com/) does it, with the secret of the consumer.

Payloads may be of event types that are not listed here. The schemas are written in draft 07 of JSON
Schema; those of the catalogue decide."""


class Version(NamedTuple):
    """The version of a row: `changed_at`, and the other columns that the document shows."""

    id: int
    changed_at: Any
    owner: int
    name: str
    system: str | None


class Selection(msgspec.Struct, frozen=True):
    """The entries of a document in order."""

    rows: Sequence[Version]

    @classmethod
    def of(
        cls, rows: QuerySet[EventType], system: int | None = None, event_type: str = ""
    ) -> Selection:
        """Select entries of `rows`. `event_type`: one type, or a prefix such as `order.*`.
        `system`: the catalogue of this system, whose own entries replace shared entries of the same
        name. Raises InvalidInput for too many entries."""
        if event_type.endswith("*"):
            rows = rows.filter(name__startswith=event_type.removesuffix("*"))
        elif event_type:
            rows = rows.filter(name=event_type)
        if system is not None:
            rows = rows.filter(owner__in=(0, system))
        columns = rows.order_by("name", "owner").values_list(
            "id", "changed_at", "owner", "name", "biz__name"
        )
        versions = [Version(*row) for row in columns[: MAX_EVENT_TYPES + 1]]
        if len(versions) > MAX_EVENT_TYPES:
            raise InvalidInput(_TOO_MANY, "event_type")
        if system is not None:
            versions = list({version.name: version for version in versions}.values())
        return cls(versions)

    @property
    def version(self) -> str:
        """A text that differs when the document does."""
        content = msgspec.json.encode([_RELEASE, settings.PUBLIC_URL, self.rows])
        digest = hashlib.sha256(content).hexdigest()[:16]
        changed_at = max((row.changed_at for row in self.rows), default=None)
        return f"{changed_at:%Y-%m-%d}.{digest}" if changed_at else digest

    def document(self) -> bytes:
        """The document as JSON. Raises InvalidInput if the document is too large."""
        parts = _Parts()
        for page in chunks(self.rows, _PAGE):
            rows = EventType.objects.select_related("biz").in_bulk([row.id for row in page])
            for row in page:
                if row.id in rows:  # it may have been deleted meanwhile
                    parts.add(CatalogueEntry(rows[row.id]))
        published_names = [name for name in parts.messages if name.endswith(f"-{Way.PUBLISH}")]
        channels: dict[str, Any] = dict(parts.channels)
        operations: dict[str, Any] = dict(parts.operations)
        if published_names:
            channels[_PUBLISH] = {
                "address": "/api/v1/messages",
                "title": "Publish an event",
                "servers": [{"$ref": "#/servers/platform"}],
                "messages": _references(published_names),
            }
            operations[_PUBLISH] = {
                "action": "receive",
                "channel": {"$ref": f"#/channels/{_PUBLISH}"},
                "title": "Publish an event",
                "summary": "An answer of 2xx means that the event is stored",
                "security": [{"$ref": "#/components/securitySchemes/apiKey"}],
                "bindings": {"http": {"method": "POST", "bindingVersion": "0.3.0"}},
            }
        address = urlsplit(settings.PUBLIC_URL)
        platform = {
            "host": address.netloc,
            "protocol": address.scheme,
            "title": "The platform",
            "description": "Where business systems publish events",
            **({"pathname": address.path} if address.path.strip("/") else {}),
        }
        consumer = {
            "host": "{consumer}",
            "protocol": "https",
            "title": "A consumer",
            "description": "The address of a consumer: where it gets events",
            "variables": {
                "consumer": {
                    "default": "consumer.example.com",
                    "description": "Your own host and path",
                }
            },
        }
        return msgspec.json.encode(
            {
                "asyncapi": ASYNCAPI,
                "info": {
                    "title": "Events of msgplatform",
                    "version": self.version,
                    "description": _DESCRIPTION,
                },
                "defaultContentType": formats.JSON,
                "servers": {"platform": platform, "consumer": consumer},
                "channels": channels,
                "operations": operations,
                "components": {
                    "schemas": {
                        **{name: headers_schema(headers) for name, headers in HEADERS.items()},
                        **parts.schemas,
                    },
                    "messages": parts.messages,
                    "securitySchemes": _SECURITY,
                },
            }
        )


class _Parts(msgspec.Struct):
    """The parts that entries add to the document, encoded, because objects take more memory."""

    channels: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict)
    operations: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict)
    messages: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict)
    schemas: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict)
    _bytes: int = 0

    def add(self, entry: CatalogueEntry) -> None:
        key = entry.key
        self.schemas[entry.schema_key] = self._encode(entry.schema)
        for way in Way:
            self.messages[f"{key}-{way}"] = self._encode(entry.message(way))
        names = [f"{key}-{way}" for way in Way if way != Way.PUBLISH]
        whose = f"published by {entry.system}" if entry.system else "of any business system"
        self.channels[key] = self._encode(
            {
                "address": entry.name,
                "title": entry.name,
                "summary": entry.summary or f"Events {whose}",
                "description": entry.row.description or f"Events {whose}.",
                "servers": [{"$ref": "#/servers/consumer"}],
                "messages": _references(names),
            }
        )
        self.operations[key] = self._encode(
            {
                "action": "send",
                "channel": {"$ref": f"#/channels/{key}"},
                "title": f"Deliver {entry.name}",
                "summary": "A POST to each consumer that has subscribed to it",
                "security": [{"$ref": "#/components/securitySchemes/signature"}],
                "bindings": {"http": {"method": "POST", "bindingVersion": "0.3.0"}},
            }
        )

    def _encode(self, part: Any) -> msgspec.Raw:
        text = msgspec.json.encode(part)
        self._bytes += len(text)
        if self._bytes > MAX_BYTES:
            raise InvalidInput(_TOO_MANY, "event_type")
        return msgspec.Raw(text)


def _references(names: Iterable[str]) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/messages/{name}"} for name in names}


_SECURITY = {
    "apiKey": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "mp_…",
        "description": "An API key of the business system, with the scope `events:write`",
    },
    "signature": {
        "type": "httpApiKey",
        "in": "header",
        "name": "webhook-signature",
        "description": "The signature of Standard Webhooks: `v1,` and the HMAC-SHA256, in base64, "
        "of `<webhook-id>.<webhook-timestamp>.<body>` with the consumer's secret (the base64 "
        "behind `whsec_`). One that fits is enough; refuse what is more than five minutes old.",
    },
}
