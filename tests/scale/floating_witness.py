"""Databases that write down who works on them, and a client that works through one address.

python -m tests.scale.floating_witness <file> <address> <own address> <port of a database> …
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import TextIO

_EVERY_SECONDS, _TIMEOUT_SECONDS = 0.05, 1.0


class _Book:
    def __init__(self, file: TextIO) -> None:
        self._file = file

    def note(self, event: str, node: str, through: str = "") -> None:
        self._file.write(json.dumps([time.time(), event, node, through]) + "\n")
        self._file.flush()


async def serve(book: _Book, address: str, port: int) -> None:
    """A database: each line is a piece of work, and is answered with its port."""

    async def session(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        through = writer.get_extra_info("peername")[0]
        try:
            while await reader.readline():
                book.note("work", str(port), through)
                writer.write(b"%d\n" % port)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    await asyncio.start_server(session, address, port)


async def work(book: _Book, address: str, is_kept: bool) -> None:
    """Open connections one after another, or one again whenever it has ended."""
    while True:
        writer = None
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                reader, writer = await asyncio.open_connection(address, 3306)
            while True:
                async with asyncio.timeout(_TIMEOUT_SECONDS):
                    writer.write(b"work\n")
                    answer = await reader.readline()
                if not answer:
                    raise ConnectionError
                book.note("kept" if is_kept else "new", answer.decode().strip())
                await asyncio.sleep(_EVERY_SECONDS)
                if not is_kept:
                    break
        except OSError as error:  # a TimeoutError is one
            word = "late" if isinstance(error, TimeoutError) else "refused"
            book.note("ended" if is_kept else word, "")
            await asyncio.sleep(_EVERY_SECONDS)
        finally:
            if writer is not None:
                writer.close()


async def main(file: str, address: str, own_address: str, *ports: str) -> None:
    with Path(file).open("w") as opened:
        book = _Book(opened)
        for port in ports:
            await serve(book, own_address, int(port))
        await asyncio.gather(work(book, address, False), work(book, address, True))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
