"""A consumer for demo, tests and benches: answers webhooks and writes them down.

    python -m demo.sink --file seen.log [--port 9000] [--delay 0.2] [--fail-every 10]
        [--status 503] [--down-for 5] [--secret whsec_…] [--bodies] [--answer-text said.txt]

Prints its port, then appends a line `<webhook-id> <unix time> [<body>]` for every message that it
answers with 2xx, flushed before the answer. With a secret it verifies signatures by the
specification (Standard Webhooks 1.0.0) and answers a wrong one with 401. It ends when its standard
input is closed, so that it cannot outlive its starter. It uses the standard library only, because
it must not share code with the sender that it checks.
"""

import argparse
import asyncio
import base64
import contextlib
import hmac
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

_TOLERANCE_SECONDS = 300


@dataclass
class Behaviour:
    """The consumer's behaviour, and its memory.

    `status`: from 300 on, the answer to everything. `down_for`: everything is answered 503 for so
    many seconds from the first request on. `fail_every`: of every so many messages one is answered
    503, once. `has_bodies`: bodies are written down, too. `answer_text`: a file; while it is there,
    each answer has its text as body and in the header X-Request-Id.
    """

    file: BinaryIO
    delay: float = 0.0
    fail_every: int = 0
    status: int = 200
    down_for: float = 0.0
    secret: str = ""
    has_bodies: bool = False
    answer_text: Path | None = None
    refused: set[bytes] = field(default_factory=set)  # by `fail_every`: accepted the next time
    seen: int = 0
    first_at: float = 0.0

    def answer(self, headers: dict[bytes, bytes], body: bytes) -> int:
        """The HTTP status for this message. An accepted message is written to the file first."""
        message_id = headers.get(b"webhook-id", b"-")
        self.first_at = self.first_at or time.monotonic()
        if self.status >= 300:
            return self.status
        if self.secret and not _is_signed(self.secret, headers, body):
            return 401
        if self.down_for and time.monotonic() - self.first_at < self.down_for:
            return 503
        if self.fail_every and message_id not in self.refused:
            self.seen += 1
            if self.seen % self.fail_every == 0:
                self.refused.add(message_id)
                return 503
        # A line break in JSON stands between values only: a space is the same.
        tail = b" " + body.replace(b"\n", b" ") if self.has_bodies else b""
        self.file.write(b"%s %.6f%s\n" % (message_id, time.time(), tail))
        self.file.flush()
        return self.status

    def text(self) -> bytes:
        """The text of an answer, b'' without one."""
        if self.answer_text is None:
            return b""
        try:
            return self.answer_text.read_bytes()
        except FileNotFoundError:
            return b""


class SinkProtocol(asyncio.Protocol):
    """HTTP/1.1 with keep-alive, just enough for a POST with Content-Length."""

    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour
        self._buffer = b""
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)  # noqa: S101
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while True:  # the buffer may hold several requests
            head, separator, rest = self._buffer.partition(b"\r\n\r\n")
            if not separator:
                return
            pairs = (line.partition(b":") for line in head.split(b"\r\n")[1:])
            headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
            length = int(headers.get(b"content-length", b"0"))
            if len(rest) < length:
                return
            self._buffer = rest[length:]
            status = self._behaviour.answer(headers, rest[:length])
            text = self._behaviour.text()
            header = b"x-request-id: %s\r\n" % text if text else b""
            response = (
                b"HTTP/1.1 %d x\r\n%scontent-length: %d\r\n\r\n%s"
                % (status, header, len(text), text)
            )  # fmt: skip
            if self._behaviour.delay:
                loop = asyncio.get_running_loop()
                loop.call_later(self._behaviour.delay, self._write, response)
            else:
                self._write(response)

    def _write(self, response: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(response)


def _is_signed(secret: str, headers: dict[bytes, bytes], body: bytes) -> bool:
    """True if the signature is right. The sender's code would agree with itself."""
    message_id, timestamp = headers.get(b"webhook-id", b""), headers.get(b"webhook-timestamp", b"")
    if not timestamp.isdigit() or abs(time.time() - int(timestamp)) > _TOLERANCE_SECONDS:
        return False
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.digest(key, message_id + b"." + timestamp + b"." + body, "sha256")
    expected_signature = b"v1," + base64.b64encode(digest)
    signatures = headers.get(b"webhook-signature", b"").split()
    return any(hmac.compare_digest(expected_signature, signature) for signature in signatures)


async def _serve(behaviour: Behaviour, port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: SinkProtocol(behaviour), "127.0.0.1", port, backlog=1024
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    # Returns when the process that started this one ends, even by SIGKILL.
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="A consumer that writes down what it gets.")
    parser.add_argument("--file", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument(
        "--fail-every", type=int, default=0, help="answer one of so many messages 503, once"
    )
    parser.add_argument("--status", type=int, default=200, help="from 300 on: answer only this")
    parser.add_argument(
        "--down-for", type=float, default=0.0,
        help="answer 503 for so many seconds from the first request on",
    )  # fmt: skip
    parser.add_argument("--secret", default="", help="verify signatures made with this secret")
    parser.add_argument("--bodies", action="store_true", help="write bodies down, too")
    parser.add_argument(
        "--answer-text", type=Path, help="a file: while it is there, each answer has its text"
    )
    options = parser.parse_args()
    with options.file.open("ab") as file, contextlib.suppress(KeyboardInterrupt):
        behaviour = Behaviour(
            file, options.delay, options.fail_every, options.status, options.down_for,
            options.secret, options.bodies, options.answer_text,
        )  # fmt: skip
        asyncio.run(_serve(behaviour, options.port))
    os._exit(0)  # the thread that reads standard input must not hold the process


if __name__ == "__main__":
    main()
