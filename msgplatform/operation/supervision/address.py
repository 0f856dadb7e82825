"""The address at which the web server listens, and the address that people open."""

import http.client
import ipaddress
import os
import socket as sockets
import sys
from argparse import ArgumentTypeError

from django.conf import settings

from msgplatform.core.http.addresses import bracketed
from msgplatform.core.servers.private_server import is_in_use
from msgplatform.operation.supervision.run import Refused

_ANSWER_SECONDS = 5.0
_MAX_PORT = 65535


def parse_port(text: str) -> int:
    """The value of an option `--port`. Raises ArgumentTypeError."""
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= _MAX_PORT):
        raise ArgumentTypeError(f"use a number from 1 to {_MAX_PORT}")
    return int(text)


def resolve(name: str, port: int) -> str:
    """The numeric address of `name`: the web server takes no names. Raises Refused."""
    try:
        addresses = sockets.getaddrinfo(name, port, type=sockets.SOCK_STREAM)
    except (sockets.gaierror, UnicodeError):
        raise Refused(f"{name} is not an address of this machine; use --host 127.0.0.1") from None
    return str(addresses[0][4][0])


def public_url(host: str, port: int) -> str:
    """PUBLIC_URL; if it is not set, plain http for this machine only. Raises Refused.

    Only the operator knows the address for other machines, and only the operator may decide that
    passwords go to other machines in clear text.
    """
    if settings.PUBLIC_URL_SET:
        return str(settings.PUBLIC_URL)
    if not ipaddress.ip_address(host).is_loopback:
        raise Refused(
            f"{host} serves other machines too: set PUBLIC_URL to the address that they use, such "
            "as https://messages.example.com behind a proxy that ends TLS."
        )
    return _http_url(host, port)


def own_url(host: str, port: int) -> str:
    """SANDBOX_URL; if it is not set, the web server's address for programs of this machine."""
    if settings.SANDBOX_URL_SET:
        return str(settings.SANDBOX_URL)
    address = ipaddress.ip_address(host)
    if address.is_unspecified:
        host = "::1" if address.version == 6 else "127.0.0.1"
    return _http_url(host, port)


def _http_url(host: str, port: int) -> str:
    return f"http://{bracketed(host)}:{port}"


def hold(host: str, port: int) -> sockets.socket:
    """Keep this address for one platform, until the returned socket is closed. Raises Refused if a
    platform keeps the address, a program listens there, or this machine does not have it.

    The web server listens later, so two platforms that start on one port at the same time would
    both find it free. The socket's abstract name, which ends with the process, admits only one
    platform. Only Linux has such names.
    """
    reservation = sockets.socket(sockets.AF_UNIX)
    try:
        if sys.platform == "linux":
            try:
                reservation.bind(f"\0msgplatform-{host}-{port}")
            except OSError:
                raise _in_use(host, port) from None
        try:
            if is_in_use(host, port):
                raise _in_use(host, port)
        except OSError as error:
            why = os.strerror(error.errno or 0)
            raise Refused(f"{bracketed(host)}:{port} cannot be used: {why}") from None
    except Refused:
        reservation.close()
        raise
    return reservation


def _in_use(host: str, port: int) -> Refused:
    return Refused(f"Port {port} of {host} is in use by another program; choose one with --port.")


def ask(host: str, port: int, path: str = "/healthz", name: str = "") -> int:
    """Ask the web server over a new connection, for the host `name` if it has one. Returns the
    status of the answer, 0 without one."""
    connection = http.client.HTTPConnection(host, port, timeout=_ANSWER_SECONDS)
    try:
        connection.request("GET", path, headers={"Host": name} if name else {})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()
