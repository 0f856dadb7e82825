"""Marker: from the senders' results to rows that say what became of each delivery."""

from collections.abc import Sequence
from datetime import timedelta

from django.utils import timezone

from bench.harness.measure import Side
from bench.harness.processes import BenchFailed, Crew, Program
from bench.harness.programs.progress import Progress
from bench.notify import notify_rows
from msgplatform.core.data import sql
from msgplatform.core.queues import jobs as queues
from msgplatform.models import MinuteCounter
from msgplatform.models.counters import WHOLE
from notify import orders
from notify.models import Attempt, ReceiveMsg
from notify.orders import Result

NAME = "marker"
ORDER = 50
ABOUT = (
    "One `run_marker` process works off prepared results in batches of 500 as senders write them: "
    "two subscriptions mixed, 95 % delivered, 5 % refused with 503 and to be tried again."
)
SUBSCRIBERS = 2
_BATCH = 500  # results in a job, as senders write them
_JOBS_A_PUT = 20
_CLAIM = "c" * 32  # of all rows: a marker takes a failure only under the row's claim
_COLUMNS = (
    "id", "msg_id", "biz_id", "biz_receive_id", "status", "send_times", "next_at", "claimed_by",
    "generation", "http_status", "error", "created_at", "updated_at",
)  # fmt: skip
# What the log of attempts has beside the outcome.
SENT_AT = 1_795_161_600.0  # unix seconds
HEADERS = (
    "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n",
    "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n",
)
_Status = ReceiveMsg.Status


class Marker(Side):
    """Our daemon."""

    poll_seconds = 0.01
    backlog = 40_000

    def prepare(self) -> None:
        notify_rows.empty()
        self._cast = notify_rows.cast(self.ground.sink_url, SUBSCRIBERS)
        batches = max(10, int(self.backlog * (self.seconds + 1)) // _BATCH)
        self._ids = notify_rows.reserve(batches * _BATCH)
        # Rows that are queued under one claim, whose lease does not run out meanwhile.
        now, biz = timezone.now(), self._cast.biz.pk
        later = now + timedelta(hours=1)
        rows = (
            (i, i, biz, subscription, int(_Status.QUEUED), 0, later, _CLAIM, 0, 0, "", now, now)
            for _, i, subscription in self._deliveries()
        )
        sql.insert("receive_msg", _COLUMNS, rows)
        self.begin(batches)

    def begin(self, batches: int) -> None:
        """Queue the results of all deliveries, in batches."""
        results = [result(*delivery) for delivery in self._deliveries()]
        jobs = [results[start : start + _BATCH] for start in range(0, len(results), _BATCH)]
        for start in range(0, batches, _JOBS_A_PUT):
            queues.put(orders.MARKER_QUEUE, jobs[start : start + _JOBS_A_PUT], ttl=None)
        self.total = len(results)

    def programs(self) -> Sequence[Program]:
        return [self.ground.daemon("run_marker")]

    def count(self) -> int:
        name = orders.MARKER_QUEUE
        return self.total - queues.depths([name])[name] * _BATCH

    def check(self, crew: Crew) -> None:
        """As many rows as were counted have their own result, and the others are as they were."""
        self.check_rows(self.count())
        counters = MinuteCounter.objects.filter(WHOLE, name__in=("delivered", "failed"))
        notify_rows.same(sum(c.value for c in counters), self.count(), "in the minute counters")
        notify_rows.same(Attempt.objects.count(), self.count(), "attempts in the log")

    def check_rows(self, marked: int) -> None:
        rows = ReceiveMsg.objects.values_list("id", "status", "http_status", "send_times")
        found = {row_id: tuple(state) for row_id, *state in rows}
        untouched = (_Status.QUEUED, 0, 0)
        done = 0
        for number, row_id, _ in self._deliveries():
            bad = refused(number)
            if found[row_id] == ((_Status.PENDING, 503, 1) if bad else (_Status.DELIVERED, 200, 1)):
                done += 1
            elif found[row_id] != untouched:
                raise BenchFailed(f"{self.name}: delivery {row_id} is {found[row_id]}")
        notify_rows.same(done, marked, f"{self.name}: marked rows")

    def _deliveries(self) -> list[tuple[int, int, int]]:
        """(number, id, subscription) of each delivery."""
        subscriptions = [s.pk for s in self._cast.subscriptions]
        return [(n, i, subscriptions[n % SUBSCRIBERS]) for n, i in enumerate(self._ids)]


class OrmSave(Marker):
    """`save(update_fields=…)` for each result, each a commit; deliveries are read 500 at a time,
    the results are in memory, no queue is read and no counter kept.
    """

    name = "orm-save"
    backlog = 5_000
    arguments: tuple[str, ...] = ()

    def begin(self, batches: int) -> None:
        self.total = batches * _BATCH
        self._progress = Progress(self.ground.file("saved.progress"))

    def programs(self) -> Sequence[Program]:
        return [
            self.ground.module(
                "saver", "bench.references.orm_save",
                *("--progress", self._progress.file, *self.arguments),
            )
        ]  # fmt: skip

    def count(self) -> int:
        return self._progress.count

    def check(self, crew: Crew) -> None:
        self.check_rows(self._progress.count)


class OrmSaveAndLog(OrmSave):
    """The same, and the attempt logged by `create()` in the same transaction, as ours logs it."""

    name = "orm-save+log"
    arguments = ("--log",)

    def check(self, crew: Crew) -> None:
        super().check(crew)
        notify_rows.same(Attempt.objects.count(), self._progress.count, "attempts in the log")


def refused(number: int) -> bool:
    """Whether the `number`-th delivery was answered with 503."""
    return number % 20 == 0


def result(number: int, row_id: int, subscription: int) -> Result:
    """The result of the `number`-th delivery, as a sender makes it."""
    bad = refused(number)
    return Result(
        id=row_id,
        subscription=subscription,
        claim=_CLAIM,
        attempt=1,
        outcome="failed" if bad else "delivered",
        http_status=503 if bad else 200,
        seconds=0.0123,
        at=SENT_AT,
        response_headers=HEADERS[bad],
    )


def sides() -> list[type[Side]]:
    return [Marker, OrmSave, OrmSaveAndLog]
