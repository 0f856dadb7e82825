"""A business system under open load.

    python -m bench.soak.caller --flow notify --port 8000 --token mp_… --rate 50 --first 0
        --book FILE --connections 16

Moments are drawn beforehand, and a request that meets no idle connection waits for one while its
time runs. A request without a good answer (a broken connection, 429, 5xx) is repeated with the same
bytes until it has one, as docs/integrate.md asks for; another answer ends the program with an
error. Each accepted request is a line in the book: number, moment due, moment answered, tries, id.
Without `--rate` it keeps `--at-most` messages ahead of the count in `--behind`.

The flow `reads` asks for timelines. Its book has the answers' times, and `--seen` a line for each
post that it saw for the first time, as `wrong-feed` with the content of another. A page on which
every post is new is followed by the next one, so that no post is passed over when many become
visible at once.

On SIGTERM it draws no more and sends nothing new, and ends after the last answer; a call that was
due and never sent is a line with 0 tries.
Standard library only.
"""

import argparse
import random
import select
import signal
import socket
import time
from collections import deque
from pathlib import Path

from bench.harness.programs.inbox import content_length
from bench.harness.programs.progress import Progress
from bench.soak import calls
from bench.soak.calls import Call

_AGAIN_SECONDS = 0.1
_ANSWER_SECONDS = 60.0  # without an answer the connection counts as broken


class Connection:
    """A keep-alive connection with at most one request in flight."""

    def __init__(self, port: int, token: str, flow: str) -> None:
        self._port, self._token, self._request = port, token, calls.FLOWS[flow]
        self.socket: socket.socket | None = None
        self.call: Call | None = None
        self.sent_at = 0.0
        self._buffer = b""

    def send(self, call: Call) -> bool:
        """True if the request is on its way; False while nobody listens."""
        method, path, kind, body = self._request(call, self._token)
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nAccept: */*\r\n"
            f"Authorization: Bearer {self._token}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        try:
            if self.socket is None:
                self.socket = socket.create_connection(("127.0.0.1", self._port), timeout=10)
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.socket.sendall(head.encode() + body)
        except OSError:
            self.close()
            return False
        self.call, self.sent_at = call, time.monotonic()
        return True

    def receive(self) -> tuple[int, bytes] | None:
        """Status and body of a whole answer; None while there is more to come. Status 0: the
        connection is broken."""
        assert self.socket
        try:
            data = self.socket.recv(262_144)
        except OSError:
            data = b""
        if not data:
            self.close()
            return 0, b""
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0 or len(self._buffer) < end + 4 + content_length(self._buffer[:end]):
            return None
        answer, self._buffer = self._buffer, b""
        return int(answer[9:12]), answer[end + 4 :]

    def close(self) -> None:
        if self.socket:
            self.socket.close()
        self.socket, self._buffer = None, b""


class Caller:
    """One epoll loop over all connections."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.stopping = options, False
        self._idle = deque(
            Connection(options.port, options.token, options.flow)
            for _ in range(options.connections)
        )
        self._busy: dict[int, Connection] = {}
        self._calls = deque[Call]()
        self._tries: dict[int, int] = {}  # of calls that were sent before
        self._seen: set[int] = set()
        self._number = options.first
        self._accepted = 0
        self._behind = Progress(options.behind) if options.behind else None
        self._seen_count = Progress(options.seen_progress) if options.seen_progress else None
        self._book = options.book.open("a", encoding="ascii")
        self._seen_book = options.seen.open("a", encoding="ascii") if options.seen else None
        self._poller = select.epoll()

    def run(self) -> None:
        due, retry_at = time.monotonic(), 0.0
        while not self.stopping or self._busy or self._calls:
            now = time.monotonic()
            if self.stopping:
                self._drop_unsent(now)
            due = self._draw(due, now)
            while self._calls and self._idle and now >= retry_at:
                if not self._send(self._calls.popleft()):
                    retry_at = now + _AGAIN_SECONDS
            until = due - now if self.options.rate and not self.stopping else _AGAIN_SECONDS
            self._poll(max(0.0, min(until, 0.05)))
            for book in filter(None, (self._book, self._seen_book)):
                book.flush()

    def _draw(self, due: float, now: float) -> float:
        """Put the calls that are due into the queue; the moment of the next one."""
        if self.stopping:
            return due
        if self._behind:
            ahead = self._number - self.options.first - self._behind.count
            for _ in range(min(self.options.at_most - ahead, len(self._idle) - len(self._calls))):
                self._add(now)
            return now
        while due <= now:
            self._add(due)
            due += random.expovariate(self.options.rate)
        return due

    def _drop_unsent(self, now: float) -> None:
        """Write down the calls that were never sent; the others must have an answer."""
        unsent = [call for call in self._calls if call.number not in self._tries]
        for call in unsent:
            self._calls.remove(call)
            self._book.write(f"{call.number} {call.due:.6f} {now:.6f} 0 -\n")

    def _add(self, due: float, path: str = "") -> None:
        self._calls.append(Call(self._number, round(due, 6), path))
        self._number += 1

    def _send(self, call: Call) -> bool:
        connection = self._idle.popleft()
        if not connection.send(call):
            self._idle.append(connection)
            self._calls.appendleft(call)
            return False
        assert connection.socket
        self._busy[connection.socket.fileno()] = connection
        self._poller.register(connection.socket, select.EPOLLIN)
        return True

    def _poll(self, seconds: float) -> None:
        for fd, _ in self._poller.poll(seconds):
            self._answer(fd, self._busy[fd])
        late = time.monotonic() - _ANSWER_SECONDS
        for fd, connection in list(self._busy.items()):
            if connection.sent_at < late:
                self._poller.unregister(fd)
                connection.close()
                self._again(fd, connection)

    def _answer(self, fd: int, connection: Connection) -> None:
        # The descriptor leaves the poller when the socket is closed.
        answer = connection.receive()
        if answer is None:
            return
        if connection.socket:
            self._poller.unregister(fd)
        status, body = answer
        call = connection.call
        assert call
        is_read = self.options.flow == "reads"
        id = "-" if is_read else calls.accepted_id(body)
        if status in (200, 202) and id:
            self._note(call, id, body)
            del self._busy[fd]
            self._idle.append(connection)
        elif status in (0, 200, 429) or status >= 500:
            self._again(fd, connection)
        else:
            raise SystemExit(f"{self.options.flow} {call}: {status} {body[:500]!r}")

    def _note(self, call: Call, id: str, body: bytes) -> None:
        now, tries = time.monotonic(), self._tries.pop(call.number, 0) + 1
        self._book.write(f"{call.number} {call.due:.6f} {now:.6f} {tries} {id}\n")
        if self._seen_book:
            self._note_posts(body, now)

    def _note_posts(self, body: bytes, now: float) -> None:
        """Write down the posts that are new, and go on to the next page if all of them are."""
        assert self._seen_book
        posts = calls.posts_of(body)
        new = {n: (place, due) for place, n, due in posts if n not in self._seen}
        for number, (place, due) in new.items():
            self._seen.add(number)
            self._seen_book.write(f"{place} {number} {due:.6f} {now:.6f}\n")
        if self._seen_count:
            self._seen_count.add(len(new))
        if len(new) == len(posts) > 0 and not self.stopping and (path := calls.next_path(body)):
            self._add(now, path)

    def _again(self, fd: int, connection: Connection) -> None:
        call = connection.call
        assert call
        del self._busy[fd]
        self._idle.append(connection)
        self._tries[call.number] = self._tries.get(call.number, 0) + 1
        self._calls.appendleft(call)
        # Without a pause a server that refuses everything would be asked all the time.
        time.sleep(_AGAIN_SECONDS / 10)

    def stop(self, *_: object) -> None:
        self.stopping = True


def main() -> None:
    parser = argparse.ArgumentParser(description="Call the platform at moments drawn beforehand.")
    parser.add_argument("--flow", choices=list(calls.FLOWS), required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--token", required=True)
    parser.add_argument("--rate", type=float, default=0.0, help="calls a second")
    parser.add_argument("--first", type=int, default=0, help="number of the first call")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--book", type=Path, required=True)
    parser.add_argument("--behind", type=Path)
    parser.add_argument("--at-most", type=int, default=0)
    parser.add_argument("--seen", type=Path)
    parser.add_argument("--seen-progress", type=Path)
    options = parser.parse_args()
    caller = Caller(options)
    signal.signal(signal.SIGTERM, caller.stop)
    caller.run()


if __name__ == "__main__":
    main()
