"""CloudEvents 1.0 as an input: the structured and the binary mode of an HTTP request.

Sources: CloudEvents 1.0.2, §2 (attributes), and its HTTP protocol binding, §3.1 (binary) and §3.2
(structured). `type` becomes the event type, `data` the payload, the extension `channel` the
channel. `time` and other extensions are not carried on.
"""

import hashlib
from codecs import BOM_UTF8
from urllib.parse import quote, unquote

import msgspec
from rest_framework.exceptions import UnsupportedMediaType
from rest_framework.request import Request

from msgplatform.core.errors import InvalidInput
from msgplatform.core.intake.idempotency import MAX_KEY_LENGTH
from msgplatform.doors.api import json
from msgplatform.doors.api.intake import unquote_key

MEDIA_TYPE = "application/cloudevents+json"
_VERSION = "1.0"
_HEADER = "HTTP_CE_"  # of an attribute in binary mode, as WSGI names headers
# Characters of a URI reference (RFC 3986 §2), which stay readable in a key.
_URI = "%:/?#[]@!$&'()*+,;=-._~"


class CloudEvent(msgspec.Struct):
    """An event with the attributes that are read; a structured one may have any others."""

    specversion: str
    id: str
    source: str
    type: str
    datacontenttype: str | None = None
    data: msgspec.Raw = msgspec.Raw(b"null")
    data_base64: str | None = None
    channel: str | None = None
    traceparent: str | None = None


def is_cloud_event(request: Request) -> bool:
    """True if the request announces a CloudEvent, in either mode."""
    media_type = json.media_type_of(request.META.get("CONTENT_TYPE", ""))
    return media_type == MEDIA_TYPE or f"{_HEADER}SPECVERSION" in request.META


def read(request: Request, max_bytes: int) -> CloudEvent:
    """The event of a request. Raises InvalidInput that names the attribute, and what `json.decode`
    raises."""
    content_type = request.META.get("CONTENT_TYPE", "")
    body = json.read_body(request, max_bytes).removeprefix(BOM_UTF8)
    if json.media_type_of(content_type) == MEDIA_TYPE:
        event = json.parse(body, CloudEvent)
    else:
        # Values of headers are percent-encoded, and older senders quote them (HTTP binding,
        # §3.1.3.2).
        attributes: dict[str, str | None] = {
            name.removeprefix(_HEADER).lower(): unquote(unquote_key(value))
            for name, value in request.META.items()
            if name.startswith(_HEADER)
        }
        attributes["datacontenttype"] = content_type or None
        try:
            event = msgspec.convert(
                {**attributes, "data": msgspec.Raw(body or b"null")}, CloudEvent
            )
        except msgspec.ValidationError as error:
            raise InvalidInput(str(error).replace("`", "")) from None
    if event.specversion != _VERSION:
        raise InvalidInput(f"this platform reads version {_VERSION}", "specversion")
    for name in ("id", "source"):
        if not getattr(event, name):
            raise InvalidInput("it must not be empty", name)
    if event.data_base64 is not None:
        raise InvalidInput("payloads are JSON: send it as `data`", "data_base64")
    media_type = json.media_type_of(event.datacontenttype or json.MEDIA_TYPE)
    if media_type != json.MEDIA_TYPE and not media_type.endswith("+json"):
        raise UnsupportedMediaType(media_type)
    return event


def key_of(event: CloudEvent) -> str:
    """The idempotency key: `source#id`, which is unique (§2.3.1), or its hash when it is long."""
    key = f"{quote(event.source, safe=_URI)}#{quote(event.id, safe='')}"
    if len(key) <= MAX_KEY_LENGTH:
        return key
    return f"cloudevent-{hashlib.sha256(key.encode()).hexdigest()}"
