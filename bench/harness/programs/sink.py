"""A subscriber that costs little: takes POSTs on keep-alive connections and answers 200.

    python -m bench.harness.programs.sink --port 9000 --progress FILE --seen FILE

It keeps a digest of each body in memory (with `--bodies` the body itself, one on a line; with
`--requests` the first line of each request), and writes them to `--seen` on SIGTERM. Its progress
is the number of requests, with `--count TEXT` of occurrences of the text in the bodies. Standard
library only: it shares no code with what it checks.
"""

import argparse
import select
import signal
from collections.abc import Callable
from pathlib import Path

from bench.harness.programs.inbox import Inbox
from bench.harness.programs.messages import digest
from bench.harness.programs.progress import Progress

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


class Sink:
    """One epoll loop over all connections."""

    def __init__(
        self, port: int, progress: Progress, keep: Callable[[bytes, bytes], bytes], text: bytes
    ) -> None:
        self.stopping = False
        self._keep, self._text = keep, text
        self.seen = bytearray()
        self._progress = progress
        self._poller = select.epoll()
        self._inbox = Inbox(port, self._poller)

    def run(self) -> None:
        while not self.stopping:
            for fd, _ in self._poller.poll(0.1):
                if request := self._inbox.take(fd):
                    # Counted before it is answered: what a sender knows as delivered is in the
                    # count.
                    self.seen += self._keep(request.head, request.body)
                    self._progress.add(request.body.count(self._text) if self._text else 1)
                    request.client.sendall(ANSWER)

    def stop(self, *_: object) -> None:
        self.stopping = True


def _digest(head: bytes, body: bytes) -> bytes:
    return digest(body)


def _body(head: bytes, body: bytes) -> bytes:
    return body + b"\n"


def _request(head: bytes, body: bytes) -> bytes:
    return head.partition(b"\r\n")[0] + b"\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Take in webhooks.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--progress", type=Path, required=True)
    parser.add_argument("--seen", type=Path, required=True)
    parser.add_argument("--bodies", dest="keep", action="store_const", const=_body, default=_digest)
    parser.add_argument("--requests", dest="keep", action="store_const", const=_request)
    parser.add_argument("--count", default="", metavar="TEXT")
    options = parser.parse_args()
    progress = Progress(options.progress)
    sink = Sink(options.port, progress, options.keep, options.count.encode())
    signal.signal(signal.SIGTERM, sink.stop)
    sink.run()
    options.seen.write_bytes(sink.seen)


if __name__ == "__main__":
    main()
