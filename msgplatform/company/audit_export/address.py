"""The address to which lines go, as the setting AUDIT_EXPORT has it."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple
from urllib.parse import urlsplit

from msgplatform.core.errors import InvalidInput
from msgplatform.core.http import destinations

_SYSLOG_SOCKET = "/dev/log"
_SYSLOG_PORT = 601  # RFC 6587, §4: syslog over TCP


class Kind(Enum):
    STDOUT = auto()
    SYSLOG_SOCKET = auto()
    SYSLOG_SERVER = auto()
    WEBHOOK = auto()


class Address(NamedTuple):
    """`place` is the path of a socket, the host of a server, or the URL of a webhook."""

    kind: Kind
    place: str = ""
    port: int = 0


def parse(text: str) -> Address:
    """The address of a text: stdout, syslog, syslog://host:601, syslog:///path or https://….

    Raises ValueError for any other text.
    """
    parts = urlsplit(text)
    if text == "stdout":
        return Address(Kind.STDOUT)
    if text == "syslog":
        return Address(Kind.SYSLOG_SOCKET, _SYSLOG_SOCKET)
    if parts.scheme == "syslog":
        if parts.hostname:
            return Address(Kind.SYSLOG_SERVER, parts.hostname, parts.port or _SYSLOG_PORT)
        if parts.path.strip("/"):
            return Address(Kind.SYSLOG_SOCKET, parts.path)
    if parts.scheme not in ("http", "https"):
        raise ValueError("it must be stdout, syslog, syslog://host:601 or an https:// address")
    try:
        destinations.parse(text)
    except InvalidInput as error:
        raise ValueError(str(error)) from None
    return Address(Kind.WEBHOOK, text)
