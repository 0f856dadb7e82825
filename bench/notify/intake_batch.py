"""Intake of batches: publish_many() with 1000 events."""

from collections.abc import Sequence

from bench.harness.measure import Side
from bench.harness.processes import Crew, Program
from bench.harness.programs import messages
from bench.harness.programs.progress import Progress
from bench.notify import notify_rows

NAME = "intake-batch"
ORDER = 20
ABOUT = (
    "`publish_many` of 1000 events, each with an idempotency key, called by one process; a batch "
    "is one transaction. The time for making the events is not in the rate, but in the CPU."
)
REASONS = {
    "executemany": (
        "Ours validates each event, looks for its subscriptions and takes a repeated key for "
        "what it is."
    ),
}
BATCH = 1000


class PublishMany(Side):
    """Our function: validate, claim the keys, read the winners back, insert the messages."""

    module = "bench.notify.publish_batches"

    def prepare(self) -> None:
        notify_rows.empty()
        self._cast = notify_rows.cast(self.ground.sink_url, 2)
        self._progress = Progress(self.ground.file("batches.progress"))

    def programs(self) -> Sequence[Program]:
        return [
            self.ground.module(
                "publisher", self.module,
                *("--progress", self._progress.file, "--prefix", self.stretch),
                *("--biz", self._cast.biz.pk, "--batch", BATCH),
            )
        ]  # fmt: skip

    def count(self) -> int:
        return self._progress.count

    def idle_seconds(self) -> float:
        # While the publisher made events.
        return self._progress.idle_seconds

    def check(self, crew: Crew) -> None:
        count = self._progress.count
        notify_rows.check_stored({messages.key(self.stretch, n) for n in range(count)})


class Executemany(PublishMany):
    """The limit: the same rows of both tables by `executemany` in one transaction; nothing is
    validated, and a repeated key would be an error.
    """

    name = "executemany"
    module = "bench.references.bare_insert"


class BulkCreate(PublishMany):
    """The same rows by Django's `bulk_create` in one transaction, as little around them."""

    name = "bulk_create"
    module = "bench.references.bulk_create"


def sides() -> list[type[Side]]:
    return [PublishMany, Executemany, BulkCreate]
