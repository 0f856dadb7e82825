"""From the answer to the publisher until the first byte at the subscriber."""

from collections.abc import Sequence

from bench.harness.measure import Side
from bench.harness.processes import BenchFailed, Crew, Program
from bench.harness.programs.progress import Progress
from bench.notify import intake, notify_rows
from notify.models import BizMsg, ReceiveMsg

NAME = "latency"
ORDER = 65
IS_OPEN = True  # the load is offered, whatever becomes of it
ABOUT = (
    "Publisher and subscriber are one process with one clock; one process of each role between "
    "them. What counts are the answer times: from the answer to the publisher until the first byte "
    "at the subscriber. The load is open: moments of publishing are drawn beforehand, and the "
    "second times count from the moment that was drawn, also when no connection was free then."
)


class Latency(Side):
    """3 messages a second: what an idle platform does with a message."""

    rate = 3.0
    answer_after = 0.0  # seconds
    # Event types, and how many of them are for an unavailable consumer.
    kinds, dead_kinds = 0, 0

    def prepare(self) -> None:
        notify_rows.empty()
        self.quiet = self.cast()
        self._arrived = Progress(self.ground.file("arrived.progress"))

    def cast(self) -> notify_rows.Cast:
        return notify_rows.cast(self.ground.sink_url, 1)

    def programs(self) -> Sequence[Program]:
        correspondent = self.ground.module(
            "load", "bench.notify.correspondent",
            *("--port", self.ground.web_port, "--token", self.quiet.token),
            *("--prefix", self.stretch, "--connections", intake.CONNECTIONS),
            *("--progress", self._arrived.file),
            *("--sink-port", self.ground.sink_port, "--rate", self.rate),
            *("--seconds", self.seconds, "--answer-after", self.answer_after),
            *("--kinds", self.kinds, "--dead-kinds", self.dead_kinds),
            load=True,
        )  # fmt: skip
        daemons = [self.ground.daemon(f"run_{role}") for role in ("marker", "sender", "maker")]
        return [*daemons, self.ground.web(), correspondent]

    def count(self) -> int:
        return self._arrived.count

    def check(self, crew: Crew) -> None:
        """The ledger: everything that was published is stored, and was delivered or waits."""
        ledger = crew.printed("load")
        published = ledger["published"]
        notify_rows.same(BizMsg.objects.count(), published, "messages")
        unsplit = BizMsg.objects.filter(state=BizMsg.State.ACCEPTED).count()
        notify_rows.same(ReceiveMsg.objects.count() + unsplit, published, "deliveries")
        status = ReceiveMsg.Status
        delivered = ReceiveMsg.objects.filter(status=status.DELIVERED).count()
        waiting = ReceiveMsg.objects.filter(status__in=[status.PENDING, status.QUEUED]).count()
        notify_rows.same(delivered + waiting + unsplit, published, "delivered or waiting messages")
        live_count = published - ledger["dead"]
        notify_rows.same(ledger["delivered"], live_count, "messages that arrived")
        if ledger["delivered"] < delivered:
            raise BenchFailed(f"{delivered} are marked, {ledger['delivered']} were delivered")


class HalfOfCapacity(Latency):
    """Half as many messages a second as all programs deliver together with 500 in flight, found out
    at the start.
    """

    name = "half-of-capacity"
    rate = 0.0  # the correspondent finds it out


class SlowConsumer(Latency):
    """40 messages a second to a consumer that takes half a second for each answer, so about 20
    requests of its 32 are in flight."""

    name = "slow-consumer"
    rate, answer_after = 40.0, 0.5


def sides() -> list[type[Side]]:
    return [Latency, HalfOfCapacity, SlowConsumer]
