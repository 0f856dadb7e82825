"""A business system that listens: it writes down every event with its body.

    python -m gateway.demo.sink --file events.log

Prints its port, then appends a line `<webhook-id> <body>` for every event, flushed before the
answer. It ends when its standard input is closed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
from pathlib import Path

from notify.demo.sink import Behaviour, SinkProtocol


class Listener(Behaviour):
    """Accepts everything."""

    def answer(self, headers: dict[bytes, bytes], body: bytes) -> int:
        event = headers.get(b"webhook-id", b"-")
        # A line break in JSON stands between values only: a space is the same.
        self.file.write(b"%s %s\n" % (event, body.replace(b"\n", b" ")))
        self.file.flush()
        return self.status


async def serve(listener: Listener) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SinkProtocol(listener), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    # Standard input closes when the starter is gone, even by SIGKILL.
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes down the events that it gets.")
    parser.add_argument("--file", type=Path, required=True)
    options = parser.parse_args()
    with options.file.open("ab") as file, contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(Listener(file)))
    os._exit(0)  # the thread that reads standard input must not hold the process


if __name__ == "__main__":
    main()
