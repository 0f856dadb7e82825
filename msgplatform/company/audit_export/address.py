"""The address to which lines go, as the setting AUDIT_EXPORT has it."""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error, register

from msgplatform import env
from msgplatform.checks import malformed_keys
from msgplatform.company.audit_export import lines
from msgplatform.core.errors import InvalidInput
from msgplatform.core.http import destinations

_SYSLOG_SOCKET = "/dev/log"
_SYSLOG_PORT = 601  # RFC 6587, §4: syslog over TCP


class Address(NamedTuple):
    """`place` is the path of syslog's socket, the host of a server of syslog, or the URL of a
    webhook."""

    kind: Literal["stdout", "socket", "server", "webhook"]
    place: str = ""
    port: int = 0


def parse(text: str) -> Address:
    """The address of a text: stdout, syslog, syslog://host:601, syslog:///path or https://….

    Raises ValueError for any other text.
    """
    parts = urlsplit(text)
    if text == "stdout":
        return Address("stdout")
    if text == "syslog":
        return Address("socket", _SYSLOG_SOCKET)
    if parts.scheme == "syslog":
        if parts.hostname:
            try:
                parts.hostname.encode("idna")  # as a socket does
            except UnicodeError:
                raise ValueError("its host is not a valid name") from None
            return Address("server", parts.hostname, parts.port or _SYSLOG_PORT)
        if parts.path.strip("/"):
            return Address("socket", parts.path)
    if parts.scheme not in ("http", "https"):
        raise ValueError("it must be stdout, syslog, syslog://host:601 or an https:// address")
    try:
        destinations.parse(text)
    except InvalidInput as error:
        raise ValueError(str(error)) from None
    return Address("webhook", text)


@register(env.CHECKS_TAG)
def settings_check(app_configs: Any, **kwargs: Any) -> Iterator[CheckMessage]:
    """Wrong values. `run_bulk` alone asks for a key that is missing: other programs need none."""
    yield from malformed_keys("AUDIT_SIGNING_KEY", "signs", "msgplatform.E013", lines.Signer)
    try:
        if settings.AUDIT_EXPORT:
            parse(settings.AUDIT_EXPORT)
    except ValueError as error:
        yield Error(
            f"AUDIT_EXPORT is not usable: {error}",
            hint="Set AUDIT_EXPORT to stdout, syslog, syslog://host:601 or an https:// address.",
            obj="AUDIT_EXPORT",
            id="msgplatform.E014",
        )
