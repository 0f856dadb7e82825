"""The SP of the bench `sgip`: sends Submits as fast as the window lets it, answers Reports.

    python -m bench.gateway.sgip_sp --smg-port 8801 --port 8802 --progress FILE --seen FILE

On SIGTERM it sends nothing new, waits for what is in flight and writes what it saw.
"""

import asyncio
import signal
from datetime import datetime
from pathlib import Path

from bench.gateway.sgip_messages import WINDOW, Records, content, record, user
from bench.harness.programs import worker
from bench.harness.programs.progress import Progress
from gateway.net import Client, Connection, Login, Server
from gateway.sgip import (
    Answered,
    Coding,
    Event,
    Limits,
    Report,
    SequenceNumber,
    SequenceSource,
    Side,
    Submit,
    sp_node_id,
)

_NODE = sp_node_id("010", 12345)
_LOGIN = Login("sp", "secret")


def submit(sequence: SequenceNumber, number: int) -> Submit:
    return Submit(
        sequence, "10655001", "0" * 21, (user(number),), "12345", "BENCH",
        message_coding=Coding.GBK, message_content=content(number),
    )  # fmt: skip


class Sp:
    """The sending end. A message is done when its Report is answered."""

    def __init__(self, progress: Progress) -> None:
        self.answers, self.reports = Records(), Records()
        self.rested = asyncio.Event()
        self._progress = progress
        # The counter of a Submit says which message it is, so that of a Bind is far from them.
        self._sequences = SequenceSource(_NODE)
        self._logins = SequenceSource(_NODE, start=1 << 31)
        self._sent = self._answered = self._reported = 0
        self._stopping = False
        self.listener = Server(Side.SP, lambda _, bind: 0, self, limits=Limits(window=WINDOW))
        self.client: Client | None = None

    def connect(self, port: int) -> Client:
        limits = Limits(window=WINDOW)
        self.client = Client(
            Side.SP, "127.0.0.1", port, _LOGIN, self, self._sequence, limits=limits
        )
        self.client.start()
        return self.client

    def stop(self) -> None:
        self._stopping = True
        self._look()

    def on_events(self, connection: Connection, events: list[Event]) -> None:
        reported = 0
        for event in events:
            if type(event) is Answered:
                result: int = event.response.result  # type: ignore[attr-defined]
                self.answers.add(event.context << 32 | result)
                self._answered += 1
            elif type(event) is Report:
                number = event.submit_sequence[2]
                self.reports.add(record(number, event.user_number.encode()) + event.state)
                connection.respond(event)
                reported += 1
        self._reported += reported
        self._progress.add(reported)
        self._pump()
        if self._stopping:
            self._look()

    def _pump(self) -> None:
        """Send until the window is full."""
        if self.client is None or self._stopping:
            return
        for connection in self.client.bound:
            if not (capacity := connection.capacity):
                continue
            for sequence in self._sequences.take(capacity, datetime.now().astimezone()):
                connection.send(submit(sequence, self._sent), self._sent)
                self._sent += 1

    def _look(self) -> None:
        """Notice that nothing is in flight any more."""
        if self._sent == self._answered == self._reported:
            self.rested.set()

    def _sequence(self) -> SequenceNumber:
        return self._logins.next(datetime.now().astimezone())


async def run(smg_port: int, port: int, progress: Progress, seen: Path) -> None:
    sp = Sp(progress)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, sp.stop)
    await sp.listener.start("127.0.0.1", port)
    client = sp.connect(smg_port)
    await sp.rested.wait()
    await client.stop()
    await sp.listener.stop()
    sp.answers.write(seen.with_suffix(".answers"))
    sp.reports.write(seen)


def main() -> None:
    parser = worker.options("Send Submits and take Reports.")
    parser.add_argument("--smg-port", type=int, required=True)
    parser.add_argument("--port", type=int, required=True, help="where it takes Reports")
    parser.add_argument("--seen", type=Path, required=True)
    options = parser.parse_args()
    asyncio.run(run(options.smg_port, options.port, options.progress, options.seen))


if __name__ == "__main__":
    main()
