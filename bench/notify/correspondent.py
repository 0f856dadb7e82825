"""A publisher and a subscriber in one process, so that one clock measures a message's whole way.

    python -m bench.notify.correspondent --port 8000 --token mp_… --prefix a --progress FILE
        --sink-port 9000 --rate 3

It publishes at random moments, on average `--rate` messages a second. Without a rate it looks in
the first third of `--seconds` how many are delivered a second when 500 are always in flight, and
then publishes at half of that rate. The first third of that look, when programs are cold, does not
count.

The load is open: moments are drawn beforehand, and a message that finds no idle connection waits
for one, while its time runs (otherwise a platform that stands still would make the moments of its
standing still disappear). With `--kinds` each message has one of so many event types, and the last
`--dead-kinds` of these are for an unavailable consumer. `--progress` counts the messages of the
open load: those that have arrived, and those for the unavailable consumer that were answered.

On SIGTERM it sends what was due by then, waits for what is on its way, and prints, in milliseconds,
how long messages took until their first byte at the subscriber, once from the moment that was drawn
(`due_…`) and once from the answer to the publisher, and the ledger. Standard library only.
"""

import argparse
import json
import random
import re
import select
import signal
import socket
import sys
import time
from collections import deque
from contextlib import suppress

from bench.harness.programs import load, messages, quantiles
from bench.harness.programs.inbox import Inbox, Received
from bench.harness.programs.load import Connection
from bench.harness.programs.progress import Progress
from bench.harness.programs.sink import ANSWER

_MAX_IN_FLIGHT = 500
_LAST_SECONDS = 100.0  # for what is on its way when it is stopped
_ORDER = re.compile(rb'"order":"([^"]+)"')


class Publisher(Connection):
    """Knows the key of the message that is in flight, and its kind, if messages have kinds."""

    kinds, kind = 0, -1

    def body(self) -> bytes:
        self.key_of_it = self._key(self._prefix, self.accepted)
        if not self.kinds:
            return super().body()
        self.kind = random.randrange(self.kinds)
        return messages.request_body(self.key_of_it, messages.event_type(self.kind))


class Correspondent:
    """One epoll loop over both sides' connections."""

    def __init__(self, options: argparse.Namespace, publishers: list[Publisher]) -> None:
        self.options, self.stopping = options, False
        self.rate: float = options.rate
        self._is_open = False  # the open load has begun
        self._publishers = {each.socket.fileno(): each for each in publishers}
        self._idle = deque(publishers)
        self._unanswered = deque[tuple[float, socket.socket]]()  # when to answer whom
        # Moments by key, until both are known: a message may arrive before its publisher has the
        # answer.
        self._due: dict[bytes, float] = {}
        self._answered: dict[bytes, float] = {}
        self._arrived: dict[bytes, float] = {}
        self.published = self.delivered = self.repeated = self.dead = 0
        # A message without a kind has the kind -1.
        self._live_kinds = options.kinds - options.dead_kinds
        self.seconds_of_answered: list[float] = []
        self.seconds_of_due: list[float] = []
        self._poller = select.epoll()
        for fd in self._publishers:
            self._poller.register(fd, select.EPOLLIN)
        self._inbox = Inbox(options.sink_port, self._poller)

    def run(self) -> None:
        if not self.rate:
            self._measure_capacity()
        self._is_open = True
        due = time.monotonic()
        while not self.stopping:
            due = self._publish_due(due, time.monotonic())
            self._poll(max(0.0, min(0.1, due - time.monotonic())) if self._idle else 0.1)
        end = time.monotonic()
        while (due <= end or self._in_flight) and time.monotonic() < end + _LAST_SECONDS:
            due = self._publish_due(due, end)
            self._poll(0.1)

    def _publish_due(self, due: float, until: float) -> float:
        """Publish what is due until then, as far as connections are idle; the next moment."""
        while self._idle and due <= until:
            self._publish(due)
            due += random.expovariate(self.rate)
        return due

    def clock(self) -> float:
        return time.monotonic()

    def _measure_capacity(self) -> None:
        """Find the rate, and wait until what was in flight is delivered."""
        look_seconds = self.options.seconds / 3
        look_start = begun = self.clock()
        count_before = 0
        while (now := self.clock()) - look_start < look_seconds:
            if begun == look_start and now - look_start > look_seconds / 3:
                begun, count_before = now, self.delivered
            while self._idle and self._in_flight < _MAX_IN_FLIGHT:
                self._publish(now)
            self._poll(0.01)
        self.rate = max((self.delivered - count_before) / (now - begun) / 2, 1.0)
        while self._in_flight and not self.stopping:
            self._poll(0.01)
        self.seconds_of_answered.clear()
        self.seconds_of_due.clear()

    @property
    def _in_flight(self) -> int:
        return self.published - self.dead - self.delivered

    def _publish(self, due: float) -> None:
        publisher = self._idle.popleft()
        publisher.send()
        self.published += 1
        if publisher.kind >= self._live_kinds:
            self.dead += 1
        else:
            self._due[publisher.key_of_it.encode()] = due

    def _poll(self, seconds: float) -> None:
        if self._unanswered:
            seconds = min(seconds, max(0.0, self._unanswered[0][0] - time.monotonic()))
        for fd, _ in self._poller.poll(seconds):
            if publisher := self._publishers.get(fd):
                is_answered = publisher.receive()
                if publisher.is_closed:
                    load.renew(publisher, self._publishers, self._poller)
                if is_answered:
                    if publisher.kind < self._live_kinds:
                        self._note(publisher.key_of_it.encode(), self._answered, time.monotonic())
                    else:
                        self._count_one()
                    self._idle.append(publisher)
            elif request := self._inbox.take(fd):
                self._receive(request)
        while self._unanswered and self._unanswered[0][0] <= time.monotonic():
            with suppress(OSError):  # it hung up
                self._unanswered.popleft()[1].sendall(ANSWER)

    def _receive(self, request: Received) -> None:
        self._unanswered.append((time.monotonic() + self.options.answer_after, request.client))
        order = _ORDER.search(request.body)
        assert order
        if order[1] not in self._due or order[1] in self._arrived:
            self.repeated += 1  # it was delivered before
            return
        self.delivered += 1
        self._count_one()
        self._note(order[1], self._arrived, request.first_at)

    def _count_one(self) -> None:
        """The look for the capacity is not part of what is measured."""
        if self._is_open:
            self.options.progress.add(1)

    def _note(self, key: bytes, moments: dict[bytes, float], at: float) -> None:
        """Note when this message was answered or arrived; with both its times are known."""
        moments[key] = at
        if key in self._answered and key in self._arrived:
            arrived = self._arrived.pop(key)
            self.seconds_of_answered.append(max(0.0, arrived - self._answered.pop(key)))
            self.seconds_of_due.append(arrived - self._due.pop(key))

    def stop(self, *_: object) -> None:
        self.stopping = True


def main() -> None:
    parser = load.options("Publish, and time what arrives.")
    parser.add_argument("--sink-port", type=int, required=True)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--answer-after", type=float, default=0.0, help="seconds")
    parser.add_argument("--kinds", type=int, default=0)
    parser.add_argument("--dead-kinds", type=int, default=0)
    options = parser.parse_args()
    options.progress = Progress(options.progress)
    publishers = [
        Publisher(options.port, options.token, f"{options.prefix}-{number}")
        for number in range(options.connections)
    ]
    for publisher in publishers:
        publisher.kinds = options.kinds
    correspondent = Correspondent(options, publishers)
    signal.signal(signal.SIGTERM, correspondent.stop)
    correspondent.run()
    report = quantiles.report(correspondent.seconds_of_answered)
    report |= quantiles.report(correspondent.seconds_of_due, quantiles.DUE)
    names = ("published", "delivered", "repeated", "dead")
    ledger = {name: getattr(correspondent, name) for name in names}
    json.dump({**report, "rate": round(correspondent.rate), **ledger}, sys.stdout)


if __name__ == "__main__":
    main()
