"""HTTP servers that behave well or badly, on real sockets, each in a thread of its own."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from msgplatform.core.servers.private_server import free_port

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass
class Seen:
    line: str
    headers: dict[str, str]
    body: bytes


Behaviour = Callable[["Sink", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Sink:
    """What arrived is in `requests`; `connections` counts accepted sockets."""

    behaviour: Behaviour
    host: str = "127.0.0.1"
    port: int = 0
    tls: ssl.SSLContext | None = None
    requests: list[Seen] = field(default_factory=list)
    connections: int = 0
    busy: int = 0
    most_busy: int = 0
    sent: int = 0
    asked: list[str] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)

    def __enter__(self) -> Sink:
        self._loop = asyncio.new_event_loop()
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        assert started.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        assert not self._thread.is_alive()

    def url(self, path: str = "/hook", host: str = "") -> str:
        scheme = "https" if self.tls else "http"
        return f"{scheme}://{host or self.host}:{self.port}{path}"

    def _run(self, started: threading.Event) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        server = loop.run_until_complete(
            asyncio.start_server(
                self._accept, self.host, self.port, ssl=self.tls, backlog=1024, limit=2**20
            )
        )
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self.behaviour(self, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError) as error:
            self.trouble.append(type(error).__name__)
        except asyncio.CancelledError:
            return
        finally:
            writer.close()

    async def read(self, reader: asyncio.StreamReader) -> Seen:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        line, *rest = head.rstrip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (h.partition(": ") for h in rest)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        seen = Seen(line, headers, body)
        self.requests.append(seen)
        return seen


def answering(answer: bytes = OK, *, close: bool = False) -> Behaviour:
    """Gives the same answer to every request, on kept-alive connections unless `close`."""

    async def behaviour(
        sink: Sink, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while not reader.at_eof():
            await sink.read(reader)
            writer.write(answer)
            await writer.drain()
            if close:
                return

    return behaviour


def slow(seconds: float, together: int = 0) -> Behaviour:
    """Thinks for a while before the headers, and counts how many it thinks about at once; it
    begins when so many have come `together`."""

    async def behaviour(
        sink: Sink, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while not reader.at_eof():
            await sink.read(reader)
            sink.busy += 1
            sink.most_busy = max(sink.most_busy, sink.busy)
            while sink.most_busy < together:
                await asyncio.sleep(0.01)
            await asyncio.sleep(seconds)
            sink.busy -= 1
            writer.write(OK)
            await writer.drain()

    return behaviour


def held(go_on: threading.Event) -> Behaviour:
    """Answers what it has taken while `go_on` is set."""

    async def behaviour(
        sink: Sink, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while not reader.at_eof():
            await sink.read(reader)
            while not go_on.is_set():
                await asyncio.sleep(0.01)
            writer.write(OK)
            await writer.drain()

    return behaviour


async def silent(sink: Sink, reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    """Takes the request and says nothing."""
    await sink.read(reader)
    await asyncio.sleep(60)


async def dripping(sink: Sink, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Quick headers, then a body that never stops coming, a byte at a time."""
    await sink.read(reader)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        writer.write(b".")
        await writer.drain()
        sink.sent += 1
        await asyncio.sleep(0.02)


async def huge(sink: Sink, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A body of up to 64 MiB; `sent` says how much of it was taken."""
    await sink.read(reader)
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(1024):
        writer.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
        await writer.drain()
        sink.sent += 65536
    writer.write(b"0\r\n\r\n")


def resetting(before: bytes = b"") -> Behaviour:
    """Sends `before`, then a TCP reset."""

    async def behaviour(
        sink: Sink, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await sink.read(reader)
        writer.write(before)
        await writer.drain()
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    return behaviour


async def socks5(
    sink: Sink, reader: asyncio.StreamReader, writer: asyncio.StreamWriter,
    is_mute: bool = False, has_route: Callable[[str], bool] = lambda _: True,
    behaviour: Behaviour | None = None,
) -> None:  # fmt: skip
    """A SOCKS5 proxy without authentication: records the address it was asked for, serves it. An
    address without a route is refused, or, if the proxy `is_mute`, gets no answer."""
    _, methods = await reader.readexactly(2)
    await reader.readexactly(methods)
    writer.write(b"\x05\x00")
    _, _, _, kind = await reader.readexactly(4)
    if kind == 1:
        target = socket.inet_ntoa(await reader.readexactly(4))
    else:
        target = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
    port = int.from_bytes(await reader.readexactly(2), "big")
    sink.asked.append(f"{target}:{port}")
    if not has_route(target):
        if is_mute:
            await reader.read()
        writer.write(b"\x05\x04\x00\x01" + bytes(6))
        return
    writer.write(b"\x05\x00\x00\x01" + bytes(6))
    await (behaviour or answering())(sink, reader, writer)


def refusing_port() -> int:
    """A port of 127.0.0.1 on which nothing listens, and that no other socket is given meanwhile."""
    return free_port()
