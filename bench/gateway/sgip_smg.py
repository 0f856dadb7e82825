"""The SMG of the bench `sgip`: answers Submits, and sends a Report for each.

    python -m bench.gateway.sgip_smg --port 8801 --sp-port 8802 --seen FILE

It uses the same engine as the SP. On SIGTERM it writes what it saw.
"""

import argparse
import asyncio
import signal
from collections import deque
from datetime import datetime
from pathlib import Path

from bench.gateway.sgip_messages import WINDOW, Records, record
from gateway.net import Client, Connection, Login, Server
from gateway.sgip import (
    Event,
    Limits,
    LoginType,
    Report,
    SequenceNumber,
    SequenceSource,
    Side,
    State,
    Submit,
)
from msgplatform.core.rates.backoff import Backoff

_NODE = 3010000001
_LOGIN = Login("smg", "secret", LoginType.SMG_TO_SP)


class Smg:
    def __init__(self) -> None:
        self.submits = Records()
        self._sequences = SequenceSource(_NODE)
        self._due: deque[Submit] = deque()
        self.server = Server(Side.SMG, lambda _, bind: 0, self, limits=Limits(window=WINDOW))
        self.client: Client | None = None

    def connect(self, port: int) -> Client:
        self.client = Client(
            Side.SMG, "127.0.0.1", port, _LOGIN, self, self._sequence,
            # The SP listens a moment later.
            limits=Limits(window=WINDOW), backoff=lambda: Backoff(first=0.05, factor=1, cap=0.05),
        )  # fmt: skip
        self.client.start()
        return self.client

    def on_events(self, connection: Connection, events: list[Event]) -> None:
        for event in events:
            if type(event) is Submit:
                connection.respond(event)
                self._due.append(event)
                seen = event.message_content + event.user_numbers[0].encode()
                self.submits.add(record(event.sequence[2], seen))
        # In the next turn of the loop, so that the responses of this one leave before Reports are
        # made.
        asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        for connection in self.client.bound if self.client else []:
            count = min(connection.capacity, len(self._due))
            if not count:
                continue
            for sequence in self._sequences.take(count, datetime.now().astimezone()):
                submit = self._due.popleft()
                user = submit.user_numbers[0]
                connection.send(Report(sequence, submit.sequence, 0, user, State.DELIVERED, 0))

    def _sequence(self) -> SequenceNumber:
        return self._sequences.next(datetime.now().astimezone())


async def run(port: int, sp_port: int, seen: Path) -> None:
    smg, stop = Smg(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await smg.server.start("127.0.0.1", port)
    client = smg.connect(sp_port)
    await stop.wait()
    await client.stop()
    await smg.server.stop()
    smg.submits.write(seen)


def main() -> None:
    parser = argparse.ArgumentParser(description="Answer Submits, and send Reports.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--sp-port", type=int, required=True, help="where Reports go")
    parser.add_argument("--seen", type=Path, required=True)
    options = parser.parse_args()
    asyncio.run(run(options.port, options.sp_port, options.seen))


if __name__ == "__main__":
    main()
