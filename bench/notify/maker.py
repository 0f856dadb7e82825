"""Maker: from accepted messages to deliveries in the subscriptions' queues."""

from collections import Counter
from collections.abc import Iterator, Sequence

from bench.harness.ground import Ground
from bench.harness.measure import Side, SideMissing
from bench.harness.processes import BenchFailed, Crew, Program
from bench.harness.programs import drain, messages
from bench.harness.programs.progress import Progress
from bench.notify import notify_rows
from bench.references import rq_jobs
from bench.references.bullmq import programs as bullmq
from gateway.connections import sms_redis
from notify import orders
from notify.models import BizMsg, ReceiveMsg

NAME = "maker"
ORDER = 30
ABOUT = (
    "One `run_maker` process splits accepted messages into a delivery for each of two "
    "subscriptions and queues them; the unit is a queued delivery. A drain takes orders from the "
    "queues as fast as they come."
)
SUBSCRIBERS = 2
# Deliveries a second for which there is a backlog; a faster side has a shorter stretch.
_BACKLOG = 60_000


class Maker(Side):
    """Our daemon: split, claim, queue; each delivery is a row with a lease."""

    backlog = _BACKLOG

    def prepare(self) -> None:
        notify_rows.empty()
        self._cast = notify_rows.cast(self.ground.sink_url, SUBSCRIBERS)
        self.keys = notify_rows.fill_messages(
            self._cast.biz.pk, self.stretch, int(self.backlog * (self.seconds + 1)) // SUBSCRIBERS
        )
        self.total = len(self.keys) * SUBSCRIBERS
        self._progress = Progress(self.ground.file("deliveries.progress"))

    def programs(self) -> Sequence[Program]:
        names = [orders.queue_name(s.biz_id, s.receive_id) for s in self._cast.subscriptions]
        self._seen = self.ground.file("deliveries.seen")
        drainer = self.ground.module(
            "drain", "bench.harness.programs.drain",
            *("--progress", self._progress.file, "--seen", self._seen, *names),
            load=True,
        )  # fmt: skip
        return [drainer, self.ground.daemon("run_maker")]

    def count(self) -> int:
        return self._progress.count

    def check(self, crew: Crew) -> None:
        """Every split message has its deliveries; every queued one came out of the queue once."""
        seen = list(drain.RECORD.iter_unpack(self._seen.read_bytes()))
        notify_rows.same(len(seen), self._progress.count, "deliveries drained")
        split = BizMsg.objects.filter(state=BizMsg.State.DISTRIBUTED).count()
        rows = ReceiveMsg.objects.all()
        notify_rows.same(rows.count(), split * SUBSCRIBERS, "deliveries of split messages")
        queued = rows.filter(status=ReceiveMsg.Status.QUEUED)
        ids = queued.values_list("id", "msg_id", "biz_receive_id")
        expected = Counter((*row, messages.expected_digest(self.keys[row[1]])) for row in ids)
        if Counter(seen) != expected:
            notify_rows.same(len(seen), expected.total(), "deliveries in the queues")
            raise BenchFailed("a queued delivery is not what was published")


class RqPerMessage(Maker):
    """Messages are read 500 at a time by the ORM, with one RQ `enqueue()` for each delivery; no
    row keeps what becomes of a delivery, so it does less than ours."""

    name = "rq-per-message"
    backlog = 8_000
    arguments: tuple[str, ...] = ()

    def programs(self) -> Sequence[Program]:
        return [
            self.ground.module(
                "splitter", "bench.references.rq_split",
                *("--progress", self._progress.file, *self.arguments),
            )
        ]  # fmt: skip

    def check(self, crew: Crew) -> None:
        """Each job that was counted is in the queue, with its own body."""
        found = Counter(self.queued_digests())
        notify_rows.same(found.total(), self._progress.count, f"{self.name}: jobs")
        split = BizMsg.objects.filter(state=BizMsg.State.DISTRIBUTED).values_list("id", flat=True)
        expected = Counter(
            {messages.expected_digest(self.keys[msg_id]): SUBSCRIBERS for msg_id in split}
        )
        if found != expected:
            raise BenchFailed(f"{self.name}: a job is not what was published")

    def queued_digests(self) -> Iterator[bytes]:
        """The digest of the body of every job that waits."""
        return rq_jobs.queued_digests()


class RqMany(RqPerMessage):
    """The same with RQ's `enqueue_many`: a page's 1000 jobs in one round trip."""

    name = "rq-enqueue-many"
    backlog = 25_000
    arguments = ("--many",)


class BullMq(RqPerMessage):
    """BullMQ (MIT) on Node.js: messages are read 500 at a time with mysql2, a page's 1000 jobs are
    one `addBulk`, and the next page is read meanwhile. Its Redis has `appendfsync always`, for a
    job is the only trace of a delivery: as durable as our rows, and more than the `everysec` that
    BullMQ's guide suggests. No row keeps what becomes of a delivery, so it does less than ours."""

    name = "bullmq"
    backlog = 40_000

    @classmethod
    def install(cls, ground: Ground) -> None:
        if ground.mariadb is None:
            raise SideMissing("BullMQ's side reads messages from MariaDB.")
        bullmq.modules()

    def prepare(self) -> None:
        super().prepare()
        sms_redis().flushall()

    def programs(self) -> Sequence[Program]:
        assert self.ground.mariadb
        return [
            bullmq.program(
                self.ground, "splitter", "split.cjs",
                redis=self.ground.sms_redis.socket, progress=self._progress.file,
                database_socket=self.ground.mariadb.socket, database="bench",
            )
        ]  # fmt: skip

    def queued_digests(self) -> Iterator[bytes]:
        return bullmq.waiting_digests(self.ground.sms_redis.socket)


def sides() -> list[type[Side]]:
    return [Maker, RqPerMessage, RqMany, BullMq]
