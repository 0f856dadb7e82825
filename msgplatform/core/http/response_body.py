"""The body of an answer as people read it: inflated when the server compressed it unasked."""

from __future__ import annotations

import zlib

from msgplatform.core.http.messages import Response

_GZIP_MAGIC = b"\x1f\x8b"
# zlib's window bits: with the header of gzip or of zlib, and without one (what some servers call
# deflate).
_EITHER, _RAW = 47, -15
_ZLIB_NAMES = frozenset({"gzip", "x-gzip", "deflate"})


def readable(response: Response, limit: int) -> bytes:
    """At most `limit` bytes of the body, inflated if it is compressed by gzip or deflate. For any
    other compression, or one that is broken, a note that names it. A text stays, whatever
    compression its header names: Tryton sends such answers."""
    body = response.body
    encoding = _content_encoding(response.headers)
    if not encoding and body.startswith(_GZIP_MAGIC):
        encoding = "gzip"
    if not encoding or not body:
        return body[:limit]
    if encoding in _ZLIB_NAMES:
        for bits in (_EITHER, _RAW):
            try:
                # The limit keeps a small body from becoming a large one.
                return zlib.decompressobj(bits).decompress(body, limit)
            except zlib.error:
                continue
    if _is_text(body):
        return body[:limit]
    return f"(compressed: {encoding})".encode()[:limit]


def _is_text(body: bytes) -> bool:
    try:
        return "\0" not in body.decode()
    except UnicodeDecodeError:
        return False


def _content_encoding(headers: bytes) -> str:
    """The value of Content-Encoding in small letters; '' without one, or for `identity`."""
    if b"ncoding" not in headers and b"NCODING" not in headers:  # nearly every answer
        return ""
    for line in headers.lower().split(b"\n"):
        name, _, value = line.partition(b":")
        if name.strip() == b"content-encoding":
            text = value.strip().decode("ascii", "replace")
            return "" if text == "identity" else text[:40]
    return ""
