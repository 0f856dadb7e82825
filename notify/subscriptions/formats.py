"""Bodies of requests in the formats that a subscription can choose: Standard Webhooks, or
CloudEvents 1.0 in structured or binary mode.

Orders carry the body of Standard Webhooks (`orders.body`). The other formats are made from this
body's text, so that the payload stays as published, byte for byte.
Source: CloudEvents 1.0.2, HTTP protocol binding, §3.1 and §3.2.
"""

from __future__ import annotations

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _

JSON = "application/json"


class Format(TextChoices):
    STANDARD = "standard", _("Standard Webhooks")
    CLOUDEVENTS = "cloudevents", _("CloudEvents, structured")
    CLOUDEVENTS_BINARY = "cloudevents-binary", _("CloudEvents, binary")


CONTENT_TYPES: dict[str, str] = {
    Format.STANDARD: JSON,
    Format.CLOUDEVENTS: "application/cloudevents+json",
    Format.CLOUDEVENTS_BINARY: JSON,
}


def source(system: str) -> str:
    """The URI reference that names a business system as the source of its events."""
    return f"/systems/{system}"


class CloudEvents:
    """Makes body and headers of a request. `own_source` is the `source` of the business system."""

    def __init__(self, own_source: str, is_binary: bool) -> None:
        self._source, self._is_binary = own_source, is_binary

    def render(self, id: str, body: str) -> tuple[bytes, tuple[str, ...]]:
        """The body, and the header lines of the event's attributes. `body` is made by
        `orders.body`: before the payload no text has a quotation mark."""
        if not self._is_binary:
            head = f'{{"specversion":"1.0","id":"{id}","source":"{self._source}",'
            attributes = body[1:].replace('"timestamp":', '"time":', 1)
            return f'{head}"datacontenttype":"{JSON}",{attributes}'.encode(), ()
        head, _mark, payload = body.partition('","data":')
        event_type, _mark, time = head.removeprefix('{"type":"').partition('","timestamp":"')
        lines = (
            "ce-specversion: 1.0",
            f"ce-id: {id}",
            f"ce-source: {self._source}",
            f"ce-type: {event_type}",
            f"ce-time: {time}",
        )
        return payload[:-1].encode(), lines

    @classmethod
    def of(cls, body_format: str, own_source: str) -> CloudEvents | None:
        """The renderer of a format; None for Standard Webhooks, the format of `orders.body`."""
        if body_format == Format.STANDARD:
            return None
        return cls(own_source, is_binary=body_format == Format.CLOUDEVENTS_BINARY)
