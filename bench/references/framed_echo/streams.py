"""The same frames over asyncio's streams, as its documentation shows: read, answer, drain.

A task for each connection; a frame is two `readexactly`, an answer one `write` and a `drain`. The
client waits at a semaphore until its window has capacity.
"""

import asyncio
import signal

from bench.gateway.sgip_messages import RESPONSE_BYTES, WINDOW, Records, record
from bench.references.framed_echo import echo_frames


async def read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """The next frame; None at the end of the stream."""
    try:
        head = await reader.readexactly(4)
        return head + await reader.readexactly(int.from_bytes(head, "big") - 4)
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return None


def number_of(frame: bytes) -> int:
    return int.from_bytes(frame[4:8], "big")


class Client:
    def __init__(self, progress) -> None:
        self.answers, self.reports = Records(), Records()
        self.progress = progress
        self.window = asyncio.Semaphore(WINDOW)
        self.stopping = False
        self.sent = self.reported = self.answered = 0
        self.rested = asyncio.Event()

    async def send(self, writer) -> None:
        while True:
            await self.window.acquire()
            if self.stopping:
                return
            writer.write(echo_frames.submit(self.sent))
            self.sent += 1
            await writer.drain()

    async def take_answers(self, reader) -> None:
        while (frame := await read_frame(reader)) is not None:
            self.answers.add(record(number_of(frame), frame))
            self.answered += 1
            self.window.release()
            self.look()

    async def take_reports(self, reader, writer) -> None:
        while (frame := await read_frame(reader)) is not None:
            self.reports.add(record(number_of(frame), frame))
            writer.write(echo_frames.response(number_of(frame)))
            await writer.drain()
            self.reported += 1
            self.progress.add(1)
            self.look()

    def look(self) -> None:
        if self.stopping and self.sent == self.answered == self.reported:
            self.rested.set()

    def stop(self) -> None:
        self.stopping = True
        self.look()


class Server:
    def __init__(self) -> None:
        self.submits = Records()
        self.window = asyncio.Semaphore(WINDOW)
        self.due: asyncio.Queue[int] = asyncio.Queue()

    async def take_submits(self, reader, writer) -> None:
        while (frame := await read_frame(reader)) is not None:
            number = number_of(frame)
            self.submits.add(record(number, frame))
            writer.write(echo_frames.response(number))
            self.due.put_nowait(number)
            await writer.drain()

    async def report(self, writer) -> None:
        while True:
            number = await self.due.get()
            await self.window.acquire()
            writer.write(echo_frames.report(number))
            await writer.drain()

    async def take_answers(self, reader) -> None:
        while (frame := await read_frame(reader)) is not None:
            if len(frame) != RESPONSE_BYTES:
                raise SystemExit("an answer has another length")
            self.window.release()


async def run_client(options) -> None:
    client = Client(options.progress)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, client.stop)
    listener = await asyncio.start_server(client.take_reports, "127.0.0.1", options.back_port)
    reader, writer = await echo_frames.connected(
        lambda: asyncio.open_connection("127.0.0.1", options.port)
    )
    tasks = [
        asyncio.create_task(client.take_answers(reader)),
        asyncio.create_task(client.send(writer)),
    ]
    await client.rested.wait()
    for task in tasks:
        task.cancel()
    listener.close()
    client.answers.write(options.seen.with_suffix(".answers"))
    client.reports.write(options.seen)


async def run_server(options) -> None:
    server, stop = Server(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    listener = await asyncio.start_server(server.take_submits, "127.0.0.1", options.port)
    reader, writer = await echo_frames.connected(
        lambda: asyncio.open_connection("127.0.0.1", options.back_port)
    )
    tasks = [
        asyncio.create_task(server.take_answers(reader)),
        asyncio.create_task(server.report(writer)),
    ]
    await stop.wait()
    for task in tasks:
        task.cancel()
    listener.close()
    server.submits.write(options.seen)


if __name__ == "__main__":
    echo_frames.main(run_client, run_server)
