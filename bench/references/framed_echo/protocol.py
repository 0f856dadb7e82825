"""The way of a message in SGIP's frames, without SGIP: frames by their length, each answered.

    python -m bench.references.framed_echo.protocol client --port 8801 --back-port 8802 …

The client sends a frame as long as a Submit; the server answers it with one as long as a response,
and sends one as long as a Report over another connection, which the client answers: four frames, as
many as a message needs. A frame is its length, the number of its message, and bytes. Frames that
need an answer are at most 32 on a connection, as in SGIP.

Plain asyncio.Protocol: what came is cut into frames by their length, each frame is answered by
itself, and the answers of what came together are one write. No frame is decoded, no field is read
but length and number, no sequence is kept, nothing times out.
"""

import asyncio
import signal
from collections.abc import Callable
from struct import Struct

from bench.gateway.sgip_messages import RESPONSE_BYTES, WINDOW, Records, record
from bench.references.framed_echo import echo_frames

_LENGTH = Struct(">I").unpack_from
_NUMBER = Struct(">I").unpack_from


class Framed(asyncio.Protocol):
    """Cuts what comes into frames; `take` gets those that came together."""

    def __init__(self, take: Callable[[list[bytes]], None]) -> None:
        self._take = take
        self._rest = b""
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        frames, at, end = [], 0, len(data)
        while end - at >= 4:
            (length,) = _LENGTH(data, at)
            if at + length > end:
                break
            frames.append(data[at : at + length])
            at += length
        self._rest = data[at:]
        self._take(frames)

    def connection_lost(self, error) -> None:
        self.lost.set_result(None)


class Client:
    """Sends messages, answers what comes back over the other connection."""

    def __init__(self, progress) -> None:
        self.answers, self.reports = Records(), Records()
        self._progress = progress
        self._sent = self._answered = self._reported = 0
        self.stopping = False
        self.rested = asyncio.Event()

    def begin(self, there: Framed) -> None:
        self._there = there
        self.fill()

    def back(self) -> Framed:
        self._back = Framed(self.take_reports)
        return self._back

    def fill(self) -> None:
        room = 0 if self.stopping else WINDOW - (self._sent - self._answered)
        numbers = range(self._sent, self._sent + room)
        self._sent += room
        self._there.transport.write(b"".join([echo_frames.submit(n) for n in numbers]))

    def take_answers(self, frames: list[bytes]) -> None:
        for frame in frames:
            (number,) = _NUMBER(frame, 4)
            self.answers.add(record(number, frame))
        self._answered += len(frames)
        self.fill()
        self.look()

    def take_reports(self, frames: list[bytes]) -> None:
        out = []
        for frame in frames:
            (number,) = _NUMBER(frame, 4)
            self.reports.add(record(number, frame))
            out.append(echo_frames.response(number))
        self._back.transport.write(b"".join(out))
        self._reported += len(frames)
        self._progress.add(len(frames))
        self.look()

    def look(self) -> None:
        if self.stopping and self._sent == self._answered == self._reported:
            self.rested.set()

    def stop(self) -> None:
        self.stopping = True
        self.look()


class Server:
    """Answers messages, and sends a frame back for each as the window lets it."""

    def __init__(self) -> None:
        self.submits = Records()
        self._due: list[int] = []
        self._open = 0
        self._back: Framed | None = None

    def there(self) -> Framed:
        self._there = Framed(self.take_submits)
        return self._there

    def begin(self, back: Framed) -> None:
        self._back = back
        self.fill()

    def take_submits(self, frames: list[bytes]) -> None:
        out = []
        for frame in frames:
            (number,) = _NUMBER(frame, 4)
            self.submits.add(record(number, frame))
            out.append(echo_frames.response(number))
            self._due.append(number)
        self._there.transport.write(b"".join(out))
        self.fill()

    def take_answers(self, frames: list[bytes]) -> None:
        if any(len(frame) != RESPONSE_BYTES for frame in frames):
            raise SystemExit("an answer has another length")
        self._open -= len(frames)
        self.fill()

    def fill(self) -> None:
        count = min(WINDOW - self._open, len(self._due))
        if count and self._back:
            self._open += count
            self._back.transport.write(b"".join(map(echo_frames.report, self._due[:count])))
            del self._due[:count]


async def run_client(options) -> None:
    loop = asyncio.get_running_loop()
    client = Client(options.progress)
    loop.add_signal_handler(signal.SIGTERM, client.stop)
    server = await loop.create_server(client.back, "127.0.0.1", options.back_port)
    _, there = await echo_frames.connected(
        lambda: loop.create_connection(
            lambda: Framed(client.take_answers), "127.0.0.1", options.port
        )
    )
    client.begin(there)
    await client.rested.wait()
    there.transport.close()
    server.close()
    client.answers.write(options.seen.with_suffix(".answers"))
    client.reports.write(options.seen)


async def run_server(options) -> None:
    loop = asyncio.get_running_loop()
    server, stop = Server(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    listener = await loop.create_server(server.there, "127.0.0.1", options.port)
    _, back = await echo_frames.connected(
        lambda: loop.create_connection(
            lambda: Framed(server.take_answers), "127.0.0.1", options.back_port
        )
    )
    server.begin(back)
    await stop.wait()
    listener.close()
    server.submits.write(options.seen)


if __name__ == "__main__":
    echo_frames.main(run_client, run_server)
