"""The messages of all benches. Everything about one follows from its key, so all can be checked.

Standard library only. A payload has about 300 bytes; as in real life, a part cannot be compressed.
"""

import hashlib
from collections.abc import Iterable

EVENT_TYPE = "order.paid"
_DATA = b'"data":'


def key(prefix: str, number: int) -> str:
    """The idempotency key of a message, unique within a bench."""
    return f"{prefix}-{number}"


def scattered_key(prefix: str, number: int) -> str:
    """A key in a random place among others, as a UUID would be."""
    digest = hashlib.blake2b(key(prefix, number).encode(), digest_size=16).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-{digest[12:]}"


def payload(key: str) -> bytes:
    """The payload, as JSON text."""
    trace = hashlib.blake2b(key.encode(), digest_size=32).hexdigest()
    return (
        f'{{"order":"{key}","amount":"1299.00","currency":"CNY","paid_at":"2026-11-20T08:15:30Z",'
        f'"customer":{{"id":"C-10442","name":"王小明","level":3}},"items":[{{"sku":"KB-87-BLK",'
        f'"count":1,"price":"1299.00"}}],"trace":"{trace}"}}'
    ).encode()


def event_type(kind: int) -> str:
    """The event type of messages of this kind, for subscriptions to one kind each."""
    return f"order.kind_{kind}"


def request_body(key: str, event_type: str = EVENT_TYPE) -> bytes:
    """What a business system POSTs to publish this message."""
    return b'{"event_type":"%s","payload":%s,"idempotency_key":"%s"}' % (
        event_type.encode(),
        payload(key),
        key.encode(),
    )


def delivered_body(key: str) -> str:
    """What a subscriber gets; the timestamp is invented."""
    head = f'{{"type":"{EVENT_TYPE}","timestamp":"2026-11-20T08:15:31.123456Z","data":'
    return head + payload(key).decode() + "}"


def digest(delivered: bytes) -> bytes:
    """Eight bytes that identify the payload in a delivered body."""
    start = delivered.find(_DATA) + len(_DATA)
    return hashlib.blake2b(delivered[start:-1], digest_size=8).digest()


def expected_digest(key: str) -> bytes:
    """The digest of this message's delivered body, whatever its timestamp."""
    return hashlib.blake2b(payload(key), digest_size=8).digest()


def split_digests(data: bytes) -> Iterable[bytes]:
    """The digests in what a sink wrote down."""
    return (data[start : start + 8] for start in range(0, len(data), 8))
