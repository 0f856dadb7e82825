"""What both echoes have in common: their frames, and the start of their programs."""

import argparse
import asyncio
from pathlib import Path
from struct import Struct

from bench.gateway.sgip_messages import REPORT_BYTES, RESPONSE_BYTES, SUBMIT_BYTES, content, user
from bench.harness.programs import worker

_HEAD = Struct(">2I").pack


def submit(number: int) -> bytes:
    """A frame as long as a Submit; it carries the user and the text that a Submit would."""
    body = user(number).encode() + content(number)
    return (_HEAD(SUBMIT_BYTES, number) + body).ljust(SUBMIT_BYTES, b"\0")


def report(number: int) -> bytes:
    return (_HEAD(REPORT_BYTES, number) + user(number).encode()).ljust(REPORT_BYTES, b"\0")


def response(number: int) -> bytes:
    return _HEAD(RESPONSE_BYTES, number).ljust(RESPONSE_BYTES, b"\0")


async def connected(connect):
    """What `connect` returns, as soon as the other end listens."""
    while True:
        try:
            return await connect()
        except ConnectionRefusedError:
            await asyncio.sleep(0.05)


def main(run_client, run_server) -> None:
    parser = argparse.ArgumentParser(description="One end of a framed echo.")
    parser.add_argument("end", choices=["client", "server"])
    parser.add_argument("--port", type=int, required=True, help="where the server listens")
    parser.add_argument("--back-port", type=int, required=True, help="where the client listens")
    parser.add_argument("--progress", type=worker.progress)
    parser.add_argument("--seen", type=Path, required=True)
    options = parser.parse_args()
    asyncio.run((run_client if options.end == "client" else run_server)(options))
