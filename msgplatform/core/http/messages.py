"""The HTTP engine's Request and Response, and the common part of many requests, which is parsed and
checked once (Outline). Free of any HTTP library."""

import re
from collections.abc import Sequence
from enum import Enum, auto
from functools import lru_cache
from typing import Any

import msgspec

from msgplatform.core.errors import InvalidInput
from msgplatform.core.http import destinations
from msgplatform.core.http.addresses import Network
from msgplatform.core.http.destinations import Destination

DETAIL_LENGTH = 300  # characters
# A caller's headers must not frame the message or name its receiver: if two servers disagree about
# the end of a request, an attacker can smuggle in a second request.
_RESERVED = frozenset(
    {"connection", "content-length", "expect", "host", "keep-alive", "te", "trailer", "upgrade"}
    | {"proxy-authorization", "proxy-connection", "transfer-encoding"}
)
# Larger bodies (bytes) get an empty Expect header: libcurl would ask "100-continue" first (from 1
# MiB on), which costs a round trip.
_ASKS_FIRST = 65536
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]+")


class Request(msgspec.Struct, gc=False):  # gc=False: a tag that refers to it would never be freed
    """`timeout` is the total deadline in seconds, from submit to the last byte of the body:
    waiting for a slot, DNS, connect, TLS, headers and body. `tag` comes back with the response.

    `once`: the request must not reach the peer twice, and gets a new connection. If a kept-alive
    connection ends without an answer, libcurl sends the request a second time.

    `networks`, if not empty, are the only permitted networks of this request. They restrict the
    engine's guard further, and never extend it.

    A request from `Outline.request` has an `outline`, whose headers were checked before; `lines`
    are its additional headers.
    """

    url: str
    body: bytes
    headers: Sequence[tuple[str, str]]
    timeout: float
    tag: Any = None
    method: str = "POST"
    networks: tuple[Network, ...] = ()
    outline: Any = None
    lines: Sequence[str] = ()
    once: bool = False


class Response(msgspec.Struct, gc=False):
    """The result of a request.

    `status` is 0 without an HTTP answer whose headers were complete. Both `status` and `error` are
    set if the body was cut (`too_large`), late (`timeout`) or incomplete (`reset`). Only `status`
    tells whether a 2xx came.

    `error` is '' or one of: dns, connect, tls, timeout, reset, too_large, address_forbidden,
    bad_url, other. `detail` is a sentence for people, without secrets, of at most 300 characters.
    `headers` (the last header block, raw) and `body` are capped. `seconds` run from submit.
    `address` is the peer's IP address, '' if none was reached; behind a proxy, the proxy's.
    """

    request: Request
    status: int
    headers: bytes
    body: bytes
    seconds: float
    error: str
    detail: str
    address: str


def header_lines(request: Request) -> list[str | bytes]:
    """The `Name: value` lines to send. Raises InvalidInput for headers that must not be sent.

    A request without a content type is sent without one.
    """
    if not _is_token(request.method):
        raise InvalidInput("The request's method is not an HTTP token.", "method")
    lines: list[str | bytes] = []
    has_content_type = False
    for name, value in request.headers:
        kind = _header_kind(name)
        if kind is not _OTHER:
            if kind is _Header.RESERVED:
                raise InvalidInput(f"The header {printable(name)!r} may not be set.", "headers")
            has_content_type = True
        if "\n" in value or "\r" in value or "\0" in value:
            raise InvalidInput(f"The header {name} holds a line break.", "headers")
        # libcurl's notation for a header with an empty value is "name;".
        line = f"{name}: {value}" if value and not value.isspace() else f"{name};"
        lines.append(line if line.isascii() else line.encode("utf-8", "replace"))
    # "name:" keeps libcurl from adding that header.
    if not has_content_type:
        lines.append("Content-Type:")
    return lines


class _Header(Enum):
    CONTENT_TYPE = auto()
    OTHER = auto()
    RESERVED = auto()


_OTHER = _Header.OTHER


@lru_cache(maxsize=1024)
def _header_kind(name: str) -> _Header:
    if name.lower() in _RESERVED or not _TOKEN.fullmatch(name):
        return _Header.RESERVED
    return _Header.CONTENT_TYPE if name.lower() == "content-type" else _Header.OTHER


@lru_cache(maxsize=64)
def _is_token(method: str) -> bool:
    return _TOKEN.fullmatch(method) is not None


def printable(text: str) -> str:
    """A text as one capped line of visible ASCII characters, which is safe to show and to log."""
    return _UNPRINTABLE.sub(" ", text).strip()[:DETAIL_LENGTH]


class Outline(msgspec.Struct, frozen=True, gc=False):
    """The fixed part of requests; made by `outline`.

    `lines` are the header lines to send. In an invalid outline `problem` is the error class and a
    sentence for the responses of all its requests. `own_host` is the platform's own web server.
    """

    url: str
    timeout: float
    method: str
    networks: tuple[Network, ...]
    destination: Destination | None
    lines: tuple[str | bytes, ...]
    problem: tuple[str, str] = ("", "")
    own_host: str = ""

    def request(self, body: bytes, lines: Sequence[str], tag: Any) -> Request:
        """A request. `lines` are its additional headers, `Name: value` in ASCII, with names that
        were given as `own`; they are checked only for line breaks."""
        return Request(
            self.url, body, (), self.timeout, tag, self.method, self.networks, self, lines
        )


def outline(
    url: str,
    headers: Sequence[tuple[str, str]],
    timeout: float,
    method: str = "POST",
    networks: tuple[Network, ...] = (),
    own: Sequence[str] = (),
    own_host: str = "",
) -> Outline:
    """Make an outline; invalid values become its `problem`. The arguments are as in Request; `own`
    are the names of headers that each request adds.

    `own_host` is the host of the platform's own web server, as its settings name it. A URL with
    exactly this host is called directly, without a proxy, even at a private address. Taking
    `own_host` from other sources than the settings would open the guard.
    """
    shared_outline = outline_of(Request(url, b"", headers, timeout, None, method, networks))
    own_outline = outline_of(Request(url, b"", [(name, "") for name in own], timeout, None, method))
    problem = own_outline.problem if own_outline.problem[0] else shared_outline.problem
    return msgspec.structs.replace(shared_outline, problem=problem, own_host=own_host)


def outline_of(request: Request) -> Outline:
    """An outline for a request that has none."""
    destination: Destination | None = None
    lines: Sequence[str | bytes] = ()
    problem = ("", "")
    error = "bad_url"
    try:
        destination = destinations.parse(request.url)
        error = "other"
        lines = header_lines(request)
    except InvalidInput as why:
        problem = (error, printable(str(why)))
    return Outline(
        request.url, request.timeout, request.method, request.networks,
        destination, tuple(lines), problem,
    )  # fmt: skip


def all_lines(outline: Outline, request: Request) -> list[str | bytes]:
    """The header lines of a request. Raises InvalidInput for a line break in its own lines."""
    own = request.lines
    lines: list[str | bytes] = [*outline.lines, *own]
    if own:
        text = "".join(own)
        if "\n" in text or "\r" in text or "\0" in text:
            raise InvalidInput("A header holds a line break.", "headers")
    if len(request.body) > _ASKS_FIRST:
        lines.append("Expect:")
    return lines
