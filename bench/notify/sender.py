"""Sender: from prepared work orders to a subscriber that answers at once."""

import socket
import time
from collections.abc import Iterator, Sequence

import msgspec

from bench.harness.ground import Ground
from bench.harness.measure import Side
from bench.harness.processes import BenchFailed, Crew, Program
from bench.harness.programs import messages
from bench.harness.programs.progress import Progress
from bench.notify import notify_rows
from bench.references import rq_jobs
from bench.references.bullmq import programs as bullmq
from msgplatform.core.queues import jobs
from notify import orders

NAME = "sender"
ORDER = 40
ABOUT = (
    "One `run_sender` process empties prepared work orders of two subscriptions (32 requests in "
    "flight each, the default) into a sink in a process of its own, which keeps connections open "
    "and answers at once. Each request is signed; each result goes to the marker's queue."
)
REASONS = {
    "pycurl-multi": (
        "The engine reads each URL strictly, vets its address, has a deadline for each request, "
        "checks headers and caps answers; the sender also claims, signs and writes each result."
    ),
}
SUBSCRIBERS = 2
_ORDERS_A_PUT = 10  # each up to a megabyte
_CLAIM_SECONDS = 60.0


class Sending(Side):
    """What all sides have in common: the sink that counts, and the check of what it saw."""

    backlog = 0  # messages a second for which there is work; a faster side has a shorter stretch

    def prepare(self) -> None:
        notify_rows.empty()
        self.amount = int(self.backlog * (self.seconds + 1))
        self.total = self.amount
        self._progress = Progress(self.ground.file("sink.progress"))
        self._seen = self.ground.file("sink.seen")

    def sink(self) -> Program:
        return sink(self.ground, self._progress, self._seen)

    def count(self) -> int:
        return self._progress.count

    def seen(self) -> set[bytes]:
        """Digests of what the sink got."""
        return set(messages.split_digests(self._seen.read_bytes()))

    def check_seen(self, keys: Sequence[str]) -> None:
        notify_rows.check_seen(self._seen.read_bytes(), keys)


class Sender(Sending):
    """Our daemon."""

    backlog = 40_000

    def prepare(self) -> None:
        super().prepare()
        cast = notify_rows.cast(self.ground.sink_url, SUBSCRIBERS)
        made = notify_rows.items(self.stretch, self.amount)
        self._keys = {item.id: key for item, key in made}
        for number, subscription in enumerate(cast.subscriptions):
            items = [item for item, _ in made[number::SUBSCRIBERS]]
            name = orders.queue_name(subscription.biz_id, subscription.receive_id)
            # A lease that outlasts the stretch: nothing is given back unsent.
            size, lease_until = orders.MAX_ITEMS, time.time() + 3600
            batches = [items[start : start + size] for start in range(0, len(items), size)]
            for start in range(0, len(batches), _ORDERS_A_PUT):
                some = batches[start : start + _ORDERS_A_PUT]
                put = [orders.Order(subscription.pk, "bench", lease_until, batch) for batch in some]
                jobs.put(name, put, ttl=3600)
        self._names = [orders.queue_name(s.biz_id, s.receive_id) for s in cast.subscriptions]

    def programs(self) -> Sequence[Program]:
        return [self.sink(), self.ground.daemon("run_sender")]

    def check(self, crew: Crew) -> None:
        """Every item has a result or still waits; the sink saw once what the results say."""
        results = [
            result
            for job in _all(orders.MARKER_QUEUE)
            for result in msgspec.convert(job.data, list[orders.Result])
        ]
        waiting = [
            item[0] for name in self._names for job in _all(name) for item in job.data["items"]
        ]
        ids = [result.id for result in results] + waiting
        notify_rows.same(len(ids), self.amount, "results and waiting items")
        if set(ids) != set(self._keys):
            raise BenchFailed("an item has two results, another one none")
        failed = [r for r in results if r.outcome == "failed"]
        if failed:
            raise BenchFailed(f"{len(failed)} deliveries failed: {failed[0]}")
        self.check_seen([self._keys[r.id] for r in results if r.outcome == "delivered"])


class RqRequests(Sending):
    """RQ's SimpleWorker (it does not fork) and a kept-alive requests session, one job a message."""

    name = "rq+requests"
    backlog = 1_500

    def prepare(self) -> None:
        super().prepare()
        keys = [messages.key(self.stretch, number) for number in range(self.amount)]
        pairs = [(str(n), messages.delivered_body(key)) for n, key in enumerate(keys)]
        rq_jobs.put_all(self.ground.sink_url, pairs)
        self._keys = keys

    def programs(self) -> Sequence[Program]:
        worker = self.ground.module(
            "worker", "bench.references.rq_worker", self.ground.environment["REDIS_URL"]
        )
        return [self.sink(), worker]

    def check(self, crew: Crew) -> None:
        waiting = set(rq_jobs.queued_digests())
        # A worker that is stopped between taking a job and running it leaves the job unsent.
        waiting |= set(rq_jobs.digests_in_hand()) - self.seen()
        sent = [key for key in self._keys if messages.expected_digest(key) not in waiting]
        self.check_seen(sent)


class BullMq(Sending):
    """A Worker of BullMQ (MIT) on Node.js with a concurrency of 64 and undici's pool of 64
    connections, one job a message with 8 attempts, jobs that ended well deleted at once. Redis
    keeps nothing on disk, as ours does not here, though BullMQ has no other record of a job."""

    name = "bullmq"
    backlog = 8_000

    @classmethod
    def install(cls, ground: Ground) -> None:
        bullmq.modules()

    def prepare(self) -> None:
        super().prepare()
        keys = [messages.key(self.stretch, number) for number in range(self.amount)]
        bodies = self.ground.file("bodies")
        bodies.write_text(
            "\n".join(f"{n} {messages.delivered_body(k)}" for n, k in enumerate(keys))
        )
        bullmq.put_all(self.ground, self.ground.redis.socket, bodies)
        self._keys = keys

    def programs(self) -> Sequence[Program]:
        worker = bullmq.program(
            self.ground, "worker", "work.cjs", redis=self.ground.redis.socket, connections=64
        )
        return [self.sink(), worker]

    def check(self, crew: Crew) -> None:
        waiting = set(bullmq.waiting_digests(self.ground.redis.socket))
        self.check_seen([k for k in self._keys if messages.expected_digest(k) not in waiting])


class PycurlMulti(Sending):
    """The limit: libcurl's multi interface with 64 handles, bodies from memory, no signature."""

    name = "pycurl-multi"
    backlog = 120_000

    def prepare(self) -> None:
        super().prepare()
        self._keys = [messages.key(self.stretch, number) for number in range(self.amount)]
        self._bodies = self.ground.file("bodies")
        self._bodies.write_text("\n".join(map(messages.delivered_body, self._keys)))

    def programs(self) -> Sequence[Program]:
        self._sent = self.ground.file("sent.progress")
        sender = self.ground.module(
            "curl", "bench.references.pycurl_multi",
            *("--progress", Progress(self._sent).file, "--url", self.ground.sink_url),
            *("--bodies", self._bodies, "--in-flight", 64),
        )  # fmt: skip
        return [self.sink(), sender]

    def check(self, crew: Crew) -> None:
        self.check_seen(self._keys[: Progress(self._sent).count])


def sink(ground: Ground, progress: Progress, seen: object, *options: str) -> Program:
    """The subscriber's process; it is ready when it listens."""

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", ground.sink_port)) == 0

    return ground.module(
        "sink", "bench.harness.programs.sink",
        *("--port", ground.sink_port, "--progress", progress.file, "--seen", seen, *options),
        load=True, ready=listens,
    )  # fmt: skip


def _all(name: str) -> Iterator[jobs.Claimed]:
    """Empty a queue."""
    while job := jobs.claim(name, _CLAIM_SECONDS):
        jobs.remove_orders([job])
        yield job


def sides() -> list[type[Side]]:
    return [Sender, RqRequests, BullMq, PycurlMulti]
