"""SGIP: the protocol engine at both ends of a message's way, with its Report."""

from collections import Counter
from collections.abc import Iterable, Sequence

from bench.gateway import sgip_messages
from bench.gateway.sgip_messages import record
from bench.harness.measure import Side
from bench.harness.processes import BenchFailed, Crew, Program
from bench.harness.programs.progress import Progress
from bench.references.framed_echo import echo_frames
from msgplatform.core.servers.private_server import free_port

NAME = "sgip"
ORDER = 80
ABOUT = (
    "The protocol engine (`gateway.net` and `gateway.sgip`) at both ends, each a process: Submit, "
    "Submit_Resp, Report, Report_Resp for each message, one recipient each, Reports over a "
    "connection that the SMG opens, as the specification has it. The window is 32 on both "
    "connections. Each Submit is made and encoded, each frame decoded; no database, no Redis."
)
REASONS = {
    "framed-echo": (
        "The echo decodes nothing. One process does many times what the whole way of a message "
        "allows."
    ),
}


class Engine(Side):
    """Client and Server of `gateway.net` at both ends."""

    ends = ("smg", "sp")  # the one that answers, the one that sends

    def prepare(self) -> None:
        self._progress = Progress(self.ground.file("sp.progress"))
        self._there, self._back = free_port(), free_port()
        self._files = {end: self.ground.file(f"{end}.seen") for end in self.ends}
        self._answers = self.ground.file(f"{self.ends[1]}.answers")

    def programs(self) -> Sequence[Program]:
        return [
            self.ground.module(
                "smg", "bench.gateway.sgip_smg", "--port", self._there, "--sp-port", self._back,
                "--seen", self._files["smg"],
            ),
            self.ground.module(
                "sp", "bench.gateway.sgip_sp", "--smg-port", self._there, "--port", self._back,
                "--progress", self._progress.file, "--seen", self._files["sp"],
            ),
        ]  # fmt: skip

    def count(self) -> int:
        return self._progress.count

    def check(self, crew: Crew) -> None:
        """Both ends saw each message, its response and its Report once, as they were sent."""
        numbers = range(self._progress.count)
        answering, sending = (self._files[end] for end in self.ends)
        same(self.name, "Submits", sgip_messages.read(answering), map(self.submit, numbers))
        same(self.name, "responses", sgip_messages.read(self._answers), map(self.answer, numbers))
        same(self.name, "Reports", sgip_messages.read(sending), map(self.report, numbers))

    # -- the records that each message must have left ---------------------------------------------
    def submit(self, number: int) -> int:
        seen = sgip_messages.content(number) + sgip_messages.user(number).encode()
        return record(number, seen)

    def answer(self, number: int) -> int:
        return number << 32  # with Result 0

    def report(self, number: int) -> int:
        return record(number, sgip_messages.user(number).encode())


class FramedEcho(Engine):
    """As many frames of the same sizes over as many connections with the same window: a plain
    `asyncio.Protocol` cuts what came into frames by their length and answers each by itself; the
    answers of what came together are one write, as ours are. Nothing is decoded.
    """

    name = "framed-echo"
    module = "bench.references.framed_echo.protocol"
    ends = ("server", "client")

    def programs(self) -> Sequence[Program]:
        return [
            self.ground.module(
                end, self.module, end, "--port", self._there, "--back-port", self._back,
                "--progress", self._progress.file, "--seen", self._files[end],
            )
            for end in self.ends
        ]  # fmt: skip

    def submit(self, number: int) -> int:
        return record(number, echo_frames.submit(number))

    def answer(self, number: int) -> int:
        return record(number, echo_frames.response(number))

    def report(self, number: int) -> int:
        return record(number, echo_frames.report(number))


class FramedEchoStreams(FramedEcho):
    """The same frames with asyncio's streams: `readexactly` for length and rest, a write and a
    `drain` for each answer.
    """

    name = "framed-echo-streams"
    module = "bench.references.framed_echo.streams"


def same(side: str, what: str, found: Counter[int], expected: Iterable[int]) -> None:
    """Raises BenchFailed unless just these records were written, each once."""
    wanted = Counter(expected)
    if found != wanted:
        raise BenchFailed(
            f"{side}: {what}: {found.total()} were seen, {wanted.total()} were expected, "
            f"{(found - wanted).total()} are unknown, {(wanted - found).total()} are missing"
        )


def sides() -> list[type[Side]]:
    return [Engine, FramedEcho, FramedEchoStreams]
