"""The common part of many requests, parsed and checked once instead of for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from msgplatform.core.errors import InvalidInput
from msgplatform.core.http import destinations
from msgplatform.core.http.addresses import Network
from msgplatform.core.http.destinations import Destination
from msgplatform.core.http.messages import Request, header_lines, printable

# From this many bytes of body on we keep libcurl from asking "100-continue" first (it asks from
# 1 MiB on), which would cost a round trip.
_ASKS_FIRST = 65536


class Outline(msgspec.Struct, frozen=True, gc=False):
    """The fixed part of requests; made by `outline`.

    `lines` are its headers as they are sent. If it is invalid, `problem` is the error class and a
    sentence, with which all its requests are answered.
    """

    url: str
    timeout: float
    method: str
    networks: tuple[Network, ...]
    destination: Destination | None
    lines: tuple[str | bytes, ...]
    problem: tuple[str, str] = ("", "")

    def request(self, body: bytes, lines: Sequence[str], tag: Any) -> Request:
        """One request. `lines` are the headers that it adds, `Name: value` in ASCII, with names
        that were given as `own`: they are checked only for line breaks."""
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
) -> Outline:
    """Make an outline; invalid values become its `problem`. The arguments are those of Request;
    `own` are the names of the headers that each request will add."""
    made = of(Request(url, b"", headers, timeout, None, method, networks))
    named = of(Request(url, b"", [(name, "") for name in own], timeout, None, method))
    return msgspec.structs.replace(made, problem=named.problem) if named.problem[0] else made


def of(request: Request) -> Outline:
    """The outline of a request that was made without one."""
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
    """The header lines of one request. Raises InvalidInput for a line break in its own."""
    own = request.lines
    lines: list[str | bytes] = [*outline.lines, *own]
    if own:
        text = "".join(own)
        if "\n" in text or "\r" in text or "\0" in text:
            raise InvalidInput("A header holds a line break.", "headers")
    if len(request.body) > _ASKS_FIRST:
        lines.append("Expect:")
    return lines
