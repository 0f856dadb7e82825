"""How long the messages of one business system take while another one has very many."""

import time
from collections.abc import Callable, Sequence

from bench.harness.measure import Side
from bench.harness.processes import BenchFailed, Crew, Program
from bench.harness.programs.progress import Progress
from bench.notify import notify_rows
from bench.notify.latency import Latency
from notify.models import BizMsg, ReceiveMsg

NAME = "fairness"
ORDER = 67
IS_OPEN = True  # the load is offered, whatever becomes of it
ABOUT = (
    "A quiet business system with one consumer publishes 6 messages a second at random moments; "
    "one process of each role. What counts are the answer times: from the answer to the publisher "
    "until the first byte at the consumer, and the longest of them. Meanwhile a busy system hands "
    "over a million messages in batches of 1,000, for an unavailable consumer (ours), or publishes "
    "20 events at once for 2,000 consumers again and again (`fan-out`). The quiet system goes on "
    "until everything of the busy one is split, or delivered."
)
REASONS = {
    "fan-out": (
        "A quiet system waits beside a fan-out to 2,000 consumers, because both use the same cores."
    ),
}
RATE = 6.0
_MESSAGES, _MESSAGES_A_SECOND = 1_000_000, 50_000
_CONSUMERS, _CONSUMERS_A_SECOND, _EVENTS = 2_000, 200, 20
_REST_SECONDS = 120.0  # without progress, when what is left is lost


class Alone(Latency):
    """The quiet system, and nothing beside it."""

    name = "alone"
    poll_seconds = 0.02
    rate = RATE

    def finish(self, crew: Crew) -> None:
        crew.stop("load")  # it waits for what is on its way
        delivered = ReceiveMsg.objects.filter(
            biz=self.quiet.biz, status=ReceiveMsg.Status.DELIVERED
        )
        self.await_zero(crew, lambda: self.count() - delivered.count())

    def await_zero(self, crew: Crew, missing: Callable[[], int]) -> None:
        """Raises BenchFailed when what is missing has not changed for long."""
        least, deadline = -1, 0.0
        while (left := missing()) > 0:
            if left != least:
                least, deadline = left, time.monotonic() + _REST_SECONDS
            elif time.monotonic() > deadline:
                raise BenchFailed(f"{left} messages did not get through\n{crew.output()}")
            crew.check("load", "flood")
            time.sleep(0.2)

    def check(self, crew: Crew) -> None:
        """Each message of the quiet system is stored, arrived, and is marked once."""
        published = crew.printed("load")["published"]
        notify_rows.same(self.count(), published, "messages of the quiet system that arrived")
        for rows, what in ((BizMsg, "messages"), (ReceiveMsg, "deliveries")):
            count = rows.objects.filter(biz=self.quiet.biz).count()
            notify_rows.same(count, published, f"{what} of the quiet system")


class Handover(Alone):
    """Beside a system that hands over a million messages."""

    name = "ours"
    batch, connections, consumers = 1000, 2, 1

    def prepare(self) -> None:
        super().prepare()
        self.busy = notify_rows.cast(self.url(), self.consumers + 1)
        self.subscriptions = len(self.busy.subscriptions)
        self._handed = Progress(self.ground.file("flood.progress"))
        self.behind = Progress(self.ground.file("behind.progress"))

    def url(self) -> str:
        return f"http://127.0.0.1:{self.ground.smg_port}/away"  # nobody listens

    def at_most(self) -> int:
        return min(_MESSAGES, int(_MESSAGES_A_SECOND * self.seconds))

    def programs(self) -> Sequence[Program]:
        flood = self.ground.module(
            "flood", "bench.notify.flood",
            *("--port", self.ground.web_port, "--token", self.busy.token),
            *("--prefix", f"{self.stretch}-busy", "--connections", self.connections),
            *("--progress", self._handed.file, "--batch", self.batch),
            *("--behind", self.behind.file, "--at-most", self.at_most()),
            load=True,
        )  # fmt: skip
        return [*super().programs(), flood]

    def finish(self, crew: Crew) -> None:
        self.end_flood(crew)
        super().finish(crew)

    def end_flood(self, crew: Crew) -> None:
        """All is handed over, and all of it split."""
        self.await_zero(crew, lambda: self.at_most() - self._handed.count)
        crew.stop("flood")
        waiting = BizMsg.objects.filter(state=BizMsg.State.ACCEPTED, biz=self.busy.biz)
        self.await_zero(crew, waiting.count)

    def check(self, crew: Crew) -> None:
        super().check(crew)
        accepted = sum(crew.printed("flood")["accepted"])
        messages = BizMsg.objects.filter(biz=self.busy.biz)
        deliveries = ReceiveMsg.objects.filter(biz=self.busy.biz)
        notify_rows.same(messages.count(), accepted, "messages of the busy system")
        notify_rows.same(
            deliveries.count(), accepted * self.subscriptions, "deliveries of the busy system"
        )


class FanOut(Handover):
    """Beside a system whose events go to 2,000 consumers each."""

    name = "fan-out"
    batch, connections = _EVENTS, 1

    def prepare(self) -> None:
        self.consumers = min(_CONSUMERS, int(_CONSUMERS_A_SECOND * self.seconds))
        self._delivered = Progress(self.ground.file("sink.progress"))
        super().prepare()

    def url(self) -> str:
        return f"http://127.0.0.1:{self.ground.smg_port}/hook"

    def at_most(self) -> int:
        return _EVENTS

    def programs(self) -> Sequence[Program]:
        sink = self.ground.module(
            "sink", "bench.harness.programs.sink",
            *("--port", self.ground.smg_port, "--progress", self._delivered.file),
            *("--seen", self.ground.file("sink.seen")),
            load=True,
        )  # fmt: skip
        return [sink, *super().programs()]

    def count(self) -> int:
        # As many events more may be handed over as every consumer has got.
        self.behind.count = self._delivered.count // self.subscriptions
        return super().count()

    def end_flood(self, crew: Crew) -> None:
        """All that was handed over is delivered and marked."""
        crew.stop("flood")
        expected = self._handed.count * self.subscriptions
        delivered = ReceiveMsg.objects.filter(biz=self.busy.biz, status=ReceiveMsg.Status.DELIVERED)
        self.await_zero(crew, lambda: expected - delivered.count())

    def check(self, crew: Crew) -> None:
        super().check(crew)
        expected = self._handed.count * self.subscriptions
        notify_rows.same(self._delivered.count, expected, "requests at the busy system's consumers")


def sides() -> list[type[Side]]:
    return [Handover, FanOut, Alone]
