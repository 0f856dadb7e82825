"""Read an answer: the headers to store, the wait of Retry-After, the start of the final answer's
headers, and the readable body.

An answer's headers are a foreign text that is stored and shown. So only headers that help to
understand a delivery are kept, and no header that grants access: no cookie, challenge or
credential.
"""

import codecs
import re
import zlib
from collections.abc import Iterator
from functools import lru_cache

from django.utils.http import parse_http_date_safe

from msgplatform.core.http.messages import Response

MAX_RETRY_AFTER = 31 * 86400.0  # seconds

_NAMES = frozenset(
    {b"cache-control", b"content-length", b"content-type", b"date", b"location", b"ratelimit"}
    | {b"retry-after", b"server", b"traceparent", b"via", b"x-request-id"}
)
_PREFIXES = (b"ratelimit-", b"webhook-", b"x-ratelimit-")
# Headers with an allowed prefix are left out if the name tells of a secret value.
_SECRET = re.compile(rb"auth|cookie|credential|key|password|secret|token")
_QUERY = re.compile(rb"[?#].*", re.DOTALL)  # may hold the signature of a signed address
_USER = re.compile(rb"^([A-Za-z][A-Za-z0-9+.-]*:)?//[^/]*@")
_MAX_NUMBER = 15  # digits
_CHARSET = re.compile(rb"""charset\s*=\s*["']?([A-Za-z0-9._:+-]{1,40})""", re.IGNORECASE)
# Codecs of Python that are no charsets, or whose decoder raises in spite of the error handler.
# UTF-7 is no charset of the Web, and its decoder makes lone surrogates, which JSON cannot carry.
_NO_CHARSETS = frozenset(
    {"idna", "punycode", "unicode_escape", "raw_unicode_escape", "unicode-escape",
     "raw-unicode-escape", "undefined", "mbcs", "oem", "utf-7"}
)  # fmt: skip
# Charset → its superset in practice (WHATWG Encoding, 4.2).
_SUPERSETS = {"gb2312": "gb18030", "gbk": "gb18030", "iso8859-1": "cp1252", "ascii": "cp1252",
              "shift_jis": "cp932", "euc_kr": "cp949"}  # fmt: skip
_BLANK = (b"\r\n", b"\n")  # the line that ends headers


@lru_cache(maxsize=256)
def kept_headers(raw: bytes, limit: int) -> str:
    """The status line and the headers to store, as lines of text joined by a newline.

    `raw` is a header block as in Response.headers. The result has only whole lines, at most `limit`
    bytes in UTF-8; invalid UTF-8 and control characters become U+FFFD. A Location loses its query,
    fragment and user name.
    """
    lines: list[str] = []
    capacity = limit
    for line in _useful(raw):
        text = line.decode("utf-8", "replace")
        if not text.isprintable():
            text = "".join(c if c.isprintable() or c == "\t" else "\ufffd" for c in text)
        capacity -= len(text.encode()) + bool(lines)  # 1 for the newline before it
        if capacity < 0:
            break
        lines.append(text)
    return "\n".join(lines)


def retry_after(raw: bytes, now: float) -> float:
    """Seconds that a Retry-After header asks to wait, at most 31 days; 0.0 without a valid one.

    `raw` is a header block as in Response.headers. A date (RFC 9110, 5.6.7) counts from the
    answer's own Date, so that the two clocks need not agree; without a Date it counts from `now`,
    in seconds since 1970.
    """
    wait_text = _value(raw, b"retry-after")
    if wait_text.isdigit():
        seconds = float(wait_text) if len(wait_text) <= _MAX_NUMBER else MAX_RETRY_AFTER
    else:
        until = _moment(wait_text)
        since = _moment(_value(raw, b"date"))
        seconds = 0.0 if until is None else until - (now if since is None else since)
    return min(max(seconds, 0.0), MAX_RETRY_AFTER)


def _useful(raw: bytes) -> Iterator[bytes]:
    """The status line, and the fields to keep."""
    start = raw.split(b"\n", 1)[0].rstrip()
    if start.startswith(b"HTTP/"):
        yield start
    for line in _fields(raw):
        name, value = _split(line)
        if name not in _NAMES and (not name.startswith(_PREFIXES) or _SECRET.search(name)):
            continue
        if name == b"location":
            value = _USER.sub(rb"\1//", _QUERY.sub(b"", value))
            line = line[: len(name) + 1] + b" " + value
        yield line


def _fields(raw: bytes) -> list[bytes]:
    """The field lines. Folded lines (RFC 9112, 5.2) are joined."""
    fields: list[bytes] = []
    for line in raw.split(b"\n"):
        line = line.rstrip()
        if line[:1] in (b" ", b"\t"):
            if fields:
                fields[-1] += b" " + line.strip()
        elif line:
            fields.append(line)
    return fields


def _split(line: bytes) -> tuple[bytes, bytes]:
    name, _, value = line.partition(b":")
    return name.rstrip().lower(), value.strip()


def _value(raw: bytes, name: bytes) -> bytes:
    """The value of the first field of this name that has one; b"" without one."""
    if name not in raw.lower():  # most names in most answers
        return b""
    return next(
        (value for field, value in map(_split, _fields(raw)) if field == name and value), b""
    )


def _moment(value: bytes) -> float | None:
    """An HTTP date in seconds since 1970; None for other texts."""
    return parse_http_date_safe(value.decode("latin-1"))


def start_of_final(lines: list[bytes]) -> int:
    """The index of the line at which the final answer's headers begin."""
    if not any(line in _BLANK for line in lines[:-1]):
        return 0
    start = len(lines) - 1
    while start > 0 and not (lines[start].startswith(b"HTTP/") and lines[start - 1] in _BLANK):
        start -= 1
    return start


def are_whole(lines: list[bytes]) -> bool:
    """True if the final answer's headers are complete; a body's trailers may follow them."""
    if not lines or lines[-1] in _BLANK:
        return bool(lines)
    return any(line in _BLANK for line in lines[start_of_final(lines) :])


_GZIP_MAGIC = b"\x1f\x8b"
# zlib's window bits: with a header of gzip or zlib, and without a header (some servers' deflate).
_EITHER, _RAW = 47, -15
_ZLIB_NAMES = frozenset({"gzip", "x-gzip", "deflate"})


def readable(response: Response, limit: int) -> bytes:
    """At most `limit` bytes of the body, inflated from gzip or deflate. Other or broken
    compressions give a note with their name. Plain text with a header of a compression stays as it
    is: Tryton sends such answers."""
    body = response.body
    encoding = _content_encoding(response.headers)
    if not encoding and body.startswith(_GZIP_MAGIC):
        encoding = "gzip"
    if not encoding or not body:
        return body[:limit]
    if encoding in _ZLIB_NAMES:
        for bits in (_EITHER, _RAW):
            try:
                # The limit bounds the size of the inflated body.
                return zlib.decompressobj(bits).decompress(body, limit)
            except zlib.error:
                continue
    if _is_text(body):
        return body[:limit]
    return f"(compressed: {encoding})".encode()[:limit]


@lru_cache(maxsize=64)
def _text_codec(name: str) -> str:
    """Python's codec for a charset of the Web; 'utf-8' if the codec is unknown or not for text."""
    try:
        # Decode some bytes: this raises for a codec that is not for text, such as base64.
        b"text".decode(name, "replace")
        codec = codecs.lookup(name).name
    except (LookupError, ValueError):
        return "utf-8"
    return "utf-8" if codec in _NO_CHARSETS else _SUPERSETS.get(codec, codec)


def charset(headers: bytes) -> str:
    """The codec of the charset in Content-Type; 'utf-8' without a charset."""
    if b"harset" not in headers and b"HARSET" not in headers:  # nearly every answer
        return "utf-8"
    match = _CHARSET.search(_value(headers, b"content-type"))
    return _text_codec(match[1].decode("ascii").lower()) if match else "utf-8"


def _is_text(body: bytes) -> bool:
    try:
        return "\0" not in body.decode()
    except UnicodeDecodeError:
        return False


def _content_encoding(headers: bytes) -> str:
    """The value of Content-Encoding in small letters; '' without one, or for `identity`."""
    text = _value(headers, b"content-encoding").lower().decode("ascii", "replace")
    return "" if text == "identity" else text[:40]
