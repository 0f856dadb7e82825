"""Notify as a whole: HTTP in, delivered, marked, by all its processes on this machine."""

from collections.abc import Sequence

from django.db.models import Sum

from bench.harness.measure import Side
from bench.harness.processes import Crew, Program
from bench.harness.programs import messages
from bench.harness.programs.progress import Progress
from bench.notify import intake, notify_rows
from bench.notify.sender import sink
from msgplatform.core.secrets import encryption
from msgplatform.models import Biz, MinuteCounter
from msgplatform.models.counters import WHOLE
from notify.models import Attempt, BizMsg, ReceiveMsg

NAME = "notify"
ORDER = 60
ABOUT = (
    "The whole way of a message: published over HTTP on 64 connections, split, queued, signed, "
    "delivered to one subscriber and marked, by one process of each role. The load generator holds "
    "back while 4,000 messages are accepted and not yet marked, so that what is measured is what "
    "all of them keep up together."
)
_LEAST, _AT_MOST = 200, 4_000  # messages accepted and not yet marked
_REST_SECONDS = 60.0  # without progress, when what is left is lost


class Notify(Side):
    """Web, maker, sender and marker on the machine's cores, beside database, load and sink."""

    poll_seconds = 0.02
    # Further options of the load generator, and how its keys are made.
    load_options: Sequence[str] = ()
    key = staticmethod(messages.key)
    # Rows below this id are not of this stretch.
    first = 0

    def prepare(self) -> None:
        notify_rows.empty()
        self.begin(notify_rows.cast(self.ground.sink_url, 1).token)

    def begin(self, token: str) -> None:
        """Let counters begin from zero; `token` is the API key for the load."""
        self._token = token
        # Fewer for a short stretch, as tests have it.
        self._at_most = max(_LEAST, min(_AT_MOST, int(_AT_MOST / 5 * self.seconds)))
        self._accepted = Progress(self.ground.file("load.progress"))
        self._marked = Progress(self.ground.file("marked.progress"))
        self._arrived = Progress(self.ground.file("sink.progress"))
        self._seen = self.ground.file("sink.seen")

    def programs(self) -> Sequence[Program]:
        load = self.ground.module(
            "load", "bench.harness.programs.load",
            *("--port", self.ground.web_port, "--token", self._token),
            *("--prefix", self.stretch, "--connections", intake.CONNECTIONS),
            *("--progress", self._accepted.file),
            *("--behind", self._marked.file, "--at-most", self._at_most),
            *self.load_options,
            load=True,
        )  # fmt: skip
        daemons = [self.ground.daemon(f"run_{role}") for role in ("marker", "sender", "maker")]
        return [sink(self.ground, self._arrived, self._seen), *daemons, self.ground.web(), load]

    def count(self) -> int:
        """Delivered messages by the minute counters, which the marking transaction writes."""
        rows = MinuteCounter.objects.filter(WHOLE, name="delivered").aggregate(total=Sum("value"))
        self._marked.count = int(rows["total"] or 0)
        return self._marked.count

    def finish(self, crew: Crew) -> None:
        self.await_rest(crew, lambda: self._accepted.count - self.count(), _REST_SECONDS)

    def check(self, crew: Crew) -> None:
        keys = intake.accepted(self.stretch, crew, self.key)
        notify_rows.check_stored(keys, self.first)
        notify_rows.check_seen(self._seen.read_bytes(), keys)
        deliveries = ReceiveMsg.objects.filter(id__gte=self.first)
        delivered = deliveries.filter(status=ReceiveMsg.Status.DELIVERED)
        notify_rows.same(delivered.count(), len(keys), "deliveries with the status delivered")
        notify_rows.same(deliveries.count(), len(keys), "deliveries")
        attempts = Attempt.objects.filter(id__gte=self.first)
        notify_rows.same(attempts.count(), len(keys), "attempts in the log")
        split = BizMsg.objects.filter(id__gte=self.first, state=BizMsg.State.DISTRIBUTED)
        notify_rows.same(split.count(), len(keys), "split messages")


class Encrypted(Notify):
    """The same, of a business system whose payloads are encrypted at rest."""

    name = "encrypted-payloads"

    def prepare(self) -> None:
        super().prepare()
        Biz.objects.update(encrypts_payloads=True)

    def check(self, crew: Crew) -> None:
        super().check(crew)
        payloads = list(BizMsg.objects.values_list("payload", flat=True))
        sealed_count = sum(encryption.is_sealed(bytes(payload)) for payload in payloads)
        notify_rows.same(sealed_count, len(payloads), "encrypted payloads")


def sides() -> list[type[Side]]:
    """Beside views that only take messages in, and deliver nothing."""
    return [Notify, Encrypted, intake.DrfOrmDefault, intake.DrfOrmTuned]
