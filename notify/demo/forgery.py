"""Messages that nobody may believe, sent straight to the consumer that verifies signatures."""

from __future__ import annotations

import http.client
import time
import uuid
from urllib.parse import urlsplit

from notify.subscriptions import signing

_BODY = b'{"type": "demo.forged", "timestamp": "2026-01-01T00:00:00Z", "data": {}}'


def refused(url: str, secret: str) -> tuple[int, int]:
    """(how many forgeries were answered with 401, how many were sent)."""
    keys = [signing.decode_secret(secret)]
    now, message_id = int(time.time()), f"forged-{uuid.uuid4().hex}"
    signed = dict(signing.headers(keys, message_id, now, _BODY))
    old = dict(signing.headers(keys, message_id, now - 3600, _BODY))
    attempts = [
        ({}, _BODY),  # not signed at all
        (signed, _BODY + b" "),  # another body
        (signed | {"webhook-id": message_id + "x"}, _BODY),
        (signed | {"webhook-timestamp": str(now + 1)}, _BODY),
        (old, _BODY),  # signed well, an hour ago
    ]
    statuses = [_post(url, headers, body) for headers, body in attempts]
    return statuses.count(401), len(statuses)


def _post(url: str, headers: dict[str, str], body: bytes) -> int:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        connection.request("POST", "/hook", body, {**headers, "content-type": "application/json"})
        return connection.getresponse().status
    finally:
        connection.close()
