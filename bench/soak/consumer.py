"""All consumers of a soak in one process: three subscribers, a business system, a CRM.

    python -m bench.soak.consumer --port 9000 --book FILE --folder DIR

`/fast` answers at once, `/slow` after a third of a second, `/dead` always with 503. `/sms` takes
the Reports of a business system, `/crm` records of leads. Each message is a line in the book: where
it came in (for `/sms` with the state), its number, the moment for which it was drawn and the one
when its first byte came. A message with the content of another is a line of `wrong-<where>`.
`DIR/<where>.progress` has the counts. Standard library only.
"""

import argparse
import json
import re
import select
import signal
import socket
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

from bench.harness.programs.inbox import Inbox, Received
from bench.harness.programs.progress import Progress
from bench.harness.programs.sink import ANSWER
from bench.soak import calls

SLOW_SECONDS = 1 / 3
PLACES = ("fast", "slow", "dead", "sms", "crm")
_REFUSAL = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n"
# A receipt of Kannel, which knows no other way than a GET.
_HEARD = re.compile(r"heard\?number=(\d+)&due=([\d.]+)&state=(\d+)")
_EVENT = re.compile(rb'"n":\s*(\d+),\s*"due":\s*([\d.]+),\s*"trace":\s*"(\w+)"')


class Consumer:
    """One epoll loop over all connections."""

    def __init__(self, port: int, book: Path, folder: Path) -> None:
        self.stopping = False
        self._book = book.open("a", encoding="ascii")
        self._counts = {name: Progress(folder / f"{name}.progress") for name in PLACES}
        self._late = deque[tuple[float, socket.socket]]()  # when to answer which connection
        self._poller = select.epoll()
        self._inbox = Inbox(port, self._poller)

    def run(self) -> None:
        while not self.stopping:
            until = self._late[0][0] - time.monotonic() if self._late else 0.1
            for fd, _ in self._poller.poll(max(0.0, min(until, 0.1))):
                if request := self._inbox.take(fd):
                    self._answer(request)
            while self._late and self._late[0][0] <= time.monotonic():
                self._send(self._late.popleft()[1], ANSWER)
            self._book.flush()

    def _answer(self, request: Received) -> None:
        place = request.head[: request.head.find(b" HTTP/")].rpartition(b"/")[2].decode()
        answer = self._take(place, request.body, request.first_at)
        if place == "slow":
            self._late.append((time.monotonic() + SLOW_SECONDS, request.client))
        else:
            self._send(request.client, answer)

    def _take(self, place: str, body: bytes, at: float) -> bytes:
        """Write down what came; the answer."""
        if place == "crm":
            return self._take_leads(json.loads(body)["leads"], at)
        if heard := _HEARD.fullmatch(place):
            number, due, state = heard.groups()
            self._note(f"sms:{state}", number, due, at)
            return ANSWER
        if place == "sms":
            data = json.loads(body)["data"]
            number, due = data["reference"].split()
            is_right = data["to"].endswith(calls.recipient(int(number)))
            self._note(f"sms:{data['state']}" if is_right else "wrong-sms", number, due, at)
        elif match := _EVENT.search(body):
            number, due, trace = (part.decode() for part in match.groups())
            is_right = trace == calls.trace(int(number))
            self._note(place if is_right else f"wrong-{place}", number, due, at)
        self._counts[place].add(1)
        return _REFUSAL if place == "dead" else ANSWER

    def _take_leads(self, leads: list[dict[str, str]], at: float) -> bytes:
        for lead in leads:
            number = int(lead["number"])
            is_right = lead["wish"] == calls.trace(number)
            is_right = is_right and lead["phone"].endswith(calls.recipient(number))
            self._note("crm" if is_right else "wrong-crm", lead["number"], lead["due"], at)
        self._counts["crm"].add(len(leads))
        results = [{"status": "stored", "id": lead["id"]} for lead in leads]
        body = json.dumps({"results": results}).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
        return head.encode() + b"\r\n\r\n" + body

    def _note(self, place: str, number: str, due: str, at: float) -> None:
        self._book.write(f"{place} {number} {due} {at:.6f}\n")

    def _send(self, client: socket.socket, answer: bytes) -> None:
        with suppress(OSError):  # the sender was killed; its end is read as such
            client.sendall(answer)

    def stop(self, *_: object) -> None:
        self.stopping = True


def main() -> None:
    parser = argparse.ArgumentParser(description="Take in everything that a soak delivers.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--book", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    options = parser.parse_args()
    consumer = Consumer(options.port, options.book, options.folder)
    signal.signal(signal.SIGTERM, consumer.stop)
    consumer.run()


if __name__ == "__main__":
    main()
