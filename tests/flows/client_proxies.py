"""A platform behind TLS, and a proxy in front of it: which requests go through the proxy.

It runs where only the client is installed. Its arguments are the files of a certificate for
localhost and of its key.
"""

import asyncio
import os
import socket
import ssl
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import StreamRequestHandler, ThreadingTCPServer

from msgplatform_client import AsyncClient, Client
from msgplatform_client.retries import proxy_of

CERTIFICATE, KEY = sys.argv[1:]


class Platform(BaseHTTPRequestHandler):
    """Accepts everything."""

    def do_POST(self) -> None:
        body = b'{"id": "1", "outcome": "created"}'
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(202)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Proxy(ThreadingTCPServer):
    """Keeps the hosts that somebody wanted to reach through it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Tunnel)
        self.targets: list[str] = []


class Tunnel(StreamRequestHandler):
    server: Proxy

    def handle(self) -> None:
        _method, target, _version = self.rfile.readline().decode().split()
        while self.rfile.readline().strip():
            pass
        self.server.targets.append(target)
        host, _, port = target.partition(":")
        with socket.create_connection((host, int(port))) as platform:
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            threading.Thread(target=pipe, args=(platform, self.connection), daemon=True).start()
            pipe(self.connection, platform)


def pipe(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)


def set_environment(**variables: str) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        del os.environ[name]
    os.environ.update(variables)


def publish(url: str) -> None:
    with Client(url, "mp_test", patience=0) as client:
        assert client.publish("a.b", 1).outcome == "created"


async def publish_with_asyncio(url: str) -> None:
    async with AsyncClient(url, "mp_test", patience=0) as client:
        assert (await client.publish("a.b", 1)).outcome == "created"


context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(CERTIFICATE, KEY)
with ThreadingHTTPServer(("127.0.0.1", 0), Platform) as server, Proxy() as proxy:
    server.socket = context.wrap_socket(server.socket, server_side=True)
    for each in (server, proxy):
        threading.Thread(target=each.serve_forever, daemon=True).start()
    target = f"localhost:{server.server_address[1]}"
    url, address = f"https://{target}", f"127.0.0.1:{proxy.server_address[1]}"

    set_environment(HTTPS_PROXY=f"http://{address}", SSL_CERT_FILE=CERTIFICATE)
    publish(url)
    asyncio.run(publish_with_asyncio(url))
    assert proxy.targets == [target] * 2, proxy.targets
    set_environment(HTTPS_PROXY=f"http://{address}", NO_PROXY="other.example, localhost")
    publish(url)
    asyncio.run(publish_with_asyncio(url))
    assert len(proxy.targets) == 2, proxy.targets
    for each in (server, proxy):
        each.shutdown()

set_environment(ALL_PROXY="proxy.example:3128", HTTPS_PROXY="http://secure.example:3128")
assert str(proxy_of("http://messages.example")) == "http://proxy.example:3128"
assert str(proxy_of("https://messages.example")) == "http://secure.example:3128"
for wrong in ("socks://proxy.example", "socks5://proxy.example:1080", "http://proxy.example:port"):
    set_environment(ALL_PROXY=wrong)
    for make in (Client, AsyncClient):
        reason = ""
        try:
            make("https://messages.example", "mp_test")
        except ValueError as error:
            reason = str(error)
        assert reason.startswith("ALL_PROXY has no address of an HTTP proxy"), (wrong, reason)
        assert "HTTPS_PROXY" in reason
        assert "messages.example into NO_PROXY" in reason
set_environment(ALL_PROXY="socks5://proxy.example", HTTPS_PROXY="https://secure.example")
assert str(proxy_of("https://messages.example")) == "https://secure.example"
set_environment(ALL_PROXY="socks5://proxy.example", NO_PROXY="messages.example")
assert proxy_of("https://messages.example") is None
set_environment()
assert proxy_of("https://messages.example") is None
print("through the proxy")
