"""Where exported lines go: standard output, syslog, or a webhook (the setting AUDIT_EXPORT).

A target takes some lines or raises NotTaken; lines of which it is not known whether they arrived
count as not taken, and come again.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from msgplatform.company.audit_export.address import Address, Kind
from msgplatform.core.errors import Unavailable
from msgplatform.core.http import engine as http

TIMEOUT_SECONDS = 15.0
CONTENT_TYPE = "application/x-ndjson"
# Facility 13 (log audit), severity 6 (informational): RFC 5424, §6.2.1.
_PRIORITY = 13 * 8 + 6
_NAME = "msgplatform-audit"

Target = Callable[[Sequence[str]], None]


class NotTaken(Unavailable):
    """The target did not take the lines; the text says why, without secrets."""


def target(address: Address, token: str = "") -> Target:
    """The target of an address; `token` is a webhook's."""
    place = address.place
    if address.kind is Kind.STDOUT:
        return _print
    if address.kind is Kind.SYSLOG_SOCKET:
        return lambda lines: _to_socket(place, lines)
    if address.kind is Kind.SYSLOG_SERVER:
        return lambda lines: _to_server(place, address.port, lines)
    return lambda lines: _post(place, token, lines)


def _print(lines: Sequence[str]) -> None:
    try:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
    except OSError as error:
        raise NotTaken(f"standard output: {error.strerror}") from error


def _to_socket(path: str, lines: Sequence[str]) -> None:
    """A datagram for each line."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
            connection.settimeout(TIMEOUT_SECONDS)
            connection.connect(path)
            for line in lines:
                connection.send(f"<{_PRIORITY}>{_NAME}: {line}".encode())
    except OSError as error:
        raise NotTaken(f"{path}: {error.strerror or error}") from error


def _to_server(host: str, port: int, lines: Sequence[str]) -> None:
    """Syslog has no acknowledgement; a server that reads to the end closes its side then."""
    # RFC 5424, §6: no time, process or structured data; the lines have their own.
    frames = [f"<{_PRIORITY}>1 - {socket.gethostname()} {_NAME} - - - {line}\n" for line in lines]
    try:
        with socket.create_connection((host, port), TIMEOUT_SECONDS) as connection:
            connection.sendall("".join(frames).encode())
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):
                pass
    except OSError as error:
        raise NotTaken(f"{host}:{port}: {error.strerror or error}") from error


def _post(address: str, token: str, lines: Sequence[str]) -> None:
    headers = [("content-type", CONTENT_TYPE)]
    if token:
        headers.append(("authorization", f"Bearer {token}"))
    body = "".join(f"{line}\n" for line in lines).encode()
    engine = http.engine_from_settings(window=1)
    try:
        engine.submit(http.Request(address, body, headers, TIMEOUT_SECONDS))
        response = None
        end = time.monotonic() + TIMEOUT_SECONDS + 5  # the engine ends the request before
        while response is None and time.monotonic() < end:
            response = next(iter(engine.poll(0.5)), None)
    finally:
        engine.close()
    host = urlsplit(address).hostname
    if response is None or not 200 <= response.status < 300:
        why = (response.detail or f"HTTP {response.status}") if response else "no answer came"
        raise NotTaken(f"{host}: {why}")
