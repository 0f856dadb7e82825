"""HTTP engine: the part of the sender that speaks HTTP, alone."""

from collections.abc import Sequence

from bench.harness.measure import Side
from bench.harness.processes import Program
from bench.harness.programs import messages
from bench.harness.programs.progress import Progress
from bench.notify.sender import PycurlMulti, Sending

NAME = "http-engine"
ORDER = 41
ABOUT = (
    "The outbound HTTP engine alone: bodies from memory, one header, 64 in flight, into the same "
    "sink as above. What it does beyond the reference is what the platform needs of it: each URL "
    "read strictly and its address vetted, a deadline for each request, headers checked, answers "
    "read and capped, epoll instead of a walk over all handles."
)
REASONS = {
    "pycurl-multi": (
        "Each URL is read strictly and its address vetted, each request has a deadline, headers "
        "are checked and answers capped."
    ),
}
_IN_FLIGHT = 64


class Engine(Sending):
    """`core.http`, driven by a loop that does nothing else."""

    backlog = 90_000

    def prepare(self) -> None:
        super().prepare()
        self._keys = [messages.key(self.stretch, number) for number in range(self.amount)]
        self._bodies = self.ground.file("bodies")
        self._bodies.write_text("\n".join(map(messages.delivered_body, self._keys)))

    def programs(self) -> Sequence[Program]:
        self._sent = self.ground.file("sent.progress")
        engine = self.ground.module(
            "engine", "bench.core.engine_loop",
            *("--progress", Progress(self._sent).file, "--url", self.ground.sink_url),
            *("--bodies", self._bodies, "--in-flight", _IN_FLIGHT),
        )  # fmt: skip
        return [self.sink(), engine]

    def check(self, crew: object) -> None:
        self.check_seen(self._keys[: Progress(self._sent).count])


def sides() -> list[type[Side]]:
    return [Engine, PycurlMulti]
